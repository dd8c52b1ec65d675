#include <fmt/format.h>

#include "ref/finding.h"
#include "report/schemas.h"
#include "sim/frameworks/framework.h"
#include "sim/frameworks/history.h"
#include "sim/scenario/model_shapes/published.h"
#include "sim/scenario/schema.h"
#include "sim/scenario/spelling.h"
#include "tools/gradledger/exit_codes.h"
#include "tools/gradledger/output.h"
#include "tools/gradledger/verbs.h"

namespace gradledger::tool {
namespace {

using Row = report::Listing::Row;
using Table = std::vector<Row>;

constexpr const char* scenario_name = "scenario";
constexpr std::string_view legend_of_behaviours =
    "A value holds from the change or the release in brackets on; gradledger list changes says what each change did. older: from before the first release that is known. never: in "
    "no release; a "
    "repair that would have been possible, or a fault that searches must find.";

Table engine_table() {
  Table out{{"engine", "serves", "accumulates in", "evidence"}};
  for (const Framework* f : frameworks())
    for (const EngineInfo& e : f->engines()) out.push_back({std::string(e.name), std::string(e.serves), std::string(e.accumulates), std::string(e.evidence)});
  return out;
}

Table framework_table() {
  Table out{{"framework", "title", "engines", "events of its own", "searched"}};
  for (const Framework* f : frameworks()) {
    std::string engines, events;
    for (const EngineInfo& e : f->engines()) engines += fmt::format("{}{}", engines.empty() ? "" : ", ", e.name);
    for (const FrameworkEvent& e : f->events()) events += fmt::format("{}{}", events.empty() ? "" : ", ", e.name);
    out.push_back({std::string(f->id()), std::string(f->title()), engines, events.empty() ? "none" : events, f->search_space() ? "yes" : "no"});
  }
  return out;
}

Table event_table() {
  Table out{{"event", "framework", "says", "reduces"}};
  for (const Framework* f : frameworks())
    for (const FrameworkEvent& e : f->events()) out.push_back({std::string(e.name), std::string(f->id()), std::string(e.says), e.reduces ? "yes" : "no"});
  return out;
}

std::vector<const Framework*> with_histories() {
  std::vector<const Framework*> out;
  for (const Framework* f : frameworks())
    if (f->history()) out.push_back(f);
  return out;
}

// Those whose release it is. One that takes a text as another release has it where nobody knows it as it stands. Errors: nobody takes it.
Result<std::vector<const Framework*>> frameworks_at(const std::string& as_of) {
  std::vector<const Framework*> known, taken;
  std::optional<InputError> first;
  for (const Framework* f : with_histories()) {
    const auto problem = f->as_of_problem(AsOf{as_of, {}});
    if (problem && !first) first = problem;
    if (!problem) (f->as_of_note(as_of) ? taken : known).push_back(f);
  }
  if (known.empty() && taken.empty()) return *first;
  return known.empty() ? taken : known;
}

Table behaviour_table(const std::string& as_of, const std::vector<const Framework*>& of) {
  Table out{{"switch", "values (since)", "at " + as_of, "meaning", "framework"}};
  for (const Framework* f : of)
    for (const History::SwitchRow& s : f->history()->switch_rows(as_of)) out.push_back({s.name, s.values, s.now, s.meaning, std::string(f->id())});
  return out;
}

Table finding_table() {
  Table out{{"class", "meaning", "seen as"}};
  for (const ref::FindingClassInfo& f : ref::finding_classes()) out.push_back({std::string(f.name), std::string(f.meaning), std::string(f.seen_as)});
  return out;
}

Table release_table() {
  Table out{{"releases", "adds", "moves", "framework"}};
  for (const Framework* f : with_histories())
    for (const History::ReleaseRow& r : f->history()->release_rows()) out.push_back({r.releases, r.adds, r.moves, std::string(f->id())});
  return out;
}

Table change_table() {
  Table out{{"change", "first release", "what it did", "framework"}};
  for (const Framework* f : with_histories())
    for (const History::ChangeRow& c : f->history()->change_rows()) out.push_back({c.change, c.first_release, c.what, std::string(f->id())});
  return out;
}

Table buffer_table() {
  Table out{{"buffer", "purpose", "allocated by", "holds"}};
  for (const Framework* f : frameworks())
    for (const BufferFamily& b : f->buffer_families()) out.push_back({std::string(b.name), std::string(name_of(b.purpose)), std::string(b.allocated_by), std::string(b.holds)});
  return out;
}

Table entry_table() {
  Table out{{"entry", "name", "title", "origin", "expected", "evidence"}};
  for (const Entry& e : catalogue())
    out.push_back({std::string(e.id), std::string(e.name), std::string(e.title), std::string(e.origin), classes_text(e), e.evidence == Evidence::recorded ? "recorded" : "read"});
  return out;
}

Table model_table() {
  Table out{{"model", "published as", "tensors", "elements", "layers", "hidden size"}};
  for (const PublishedModel& m : published_models()) {
    const std::vector<TensorShape>& shapes = shapes_of(m);
    out.push_back({std::string(m.name), std::string(m.published_as), fmt::format("{}", shapes.size()), fmt::format("{}", numel_of(shapes)), fmt::format("{}", m.layers),
                   fmt::format("{}", m.hidden)});
  }
  return out;
}

Table schema_table() {
  Table out{{"schema", "of"}};
  for (const report::EmbeddedSchema& schema : report::embedded_schemas()) out.push_back({std::string(schema.name), report::title_of(schema)});
  out.push_back({scenario_name, "A scenario"});
  return out;
}

Table rule_table() {
  Table out{{"rule", "says"}};
  for (const Framework* f : frameworks())
    for (const UseRule& r : f->use_rules()) out.push_back({std::string(r.id), std::string(r.says)});
  return out;
}

Table exit_code_table() {
  Table out{{"code", "meaning"}};
  for (const ExitCodeInfo& e : exit_codes) out.push_back({fmt::format("{}", static_cast<int>(e.code)), std::string(e.meaning)});
  return out;
}

}  // namespace

int list(const std::string& what, const Options& options, const Output& out) {
  const auto known = frameworks_at(options.as_of);
  if (!known) {
    complain({"--as-of", known.error().message});
    return bad_input;
  }
  for (const Framework* f : *known) say_what_is_taken_as("--as-of", *f, options.as_of);
  const Table table = what == "frameworks"   ? framework_table()
                      : what == "events"     ? event_table()
                      : what == "engines"    ? engine_table()
                      : what == "behaviours" ? behaviour_table(options.as_of, *known)
                      : what == "findings"   ? finding_table()
                      : what == "releases"   ? release_table()
                      : what == "changes"    ? change_table()
                      : what == "buffers"    ? buffer_table()
                      : what == "entries"    ? entry_table()
                      : what == "rules"      ? rule_table()
                      : what == "models"     ? model_table()
                      : what == "schemas"    ? schema_table()
                                             : exit_code_table();
  out.print(report::Listing{.what = what, .table = table, .legend = what == "behaviours" ? std::string(legend_of_behaviours) : ""});
  return clean;
}

int schema(const std::string& name) {
  const std::optional<std::string> text = name == scenario_name ? std::string(scenario_schema_text()) : report::schema_text(name);
  if (text) {
    fmt::print("{}", *text);
    return clean;
  }
  std::vector<std::string> known;
  for (const Row& row : schema_table()) known.push_back(row.front());
  complain({"NAME", fmt::format("{} is no schema; expected one that `gradledger list schemas` shows{}", name, suggestion(name, known))});
  return bad_input;
}

}  // namespace gradledger::tool
