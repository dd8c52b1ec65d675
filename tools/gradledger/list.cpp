#include <fmt/format.h>

#include "ref/finding.h"
#include "sim/frameworks/deepspeed/behaviour.h"
#include "sim/frameworks/deepspeed/settings.h"
#include "sim/frameworks/framework.h"
#include "sim/scenario/catalogue.h"
#include "tools/gradledger/exit_codes.h"
#include "tools/gradledger/output.h"
#include "tools/gradledger/verbs.h"

namespace gradledger::tool {
namespace {

using Row = report::Listing::Row;
using Table = std::vector<Row>;

Table engine_table() {
  Table out{{"engine", "serves", "accumulates in", "evidence"}};
  for (const Framework* f : frameworks())
    for (const EngineInfo& e : f->engines()) out.push_back({std::string(e.name), std::string(e.serves), std::string(e.accumulates), std::string(e.evidence)});
  return out;
}

Table behaviour_table(const std::string& as_of, const Behaviour& behaviour) {
  Table out{{"switch", "values (since)", "at " + as_of, "meaning"}};
  for (const SwitchInfo& s : switches()) {
    std::string values;
    for (const SwitchInfo::Value& v : s.values) values += fmt::format("{}{} ({})", values.empty() ? "" : ", ", v.name, v.since);
    out.push_back({std::string(s.name), values, std::string(switch_value(behaviour, s.name)), std::string(s.meaning)});
  }
  return out;
}

Table finding_table() {
  Table out{{"class", "meaning", "seen as"}};
  for (const ref::FindingClassInfo& f : ref::finding_classes()) out.push_back({std::string(f.name), std::string(f.meaning), std::string(f.seen_as)});
  return out;
}

// "offload_keep gate_ga (#7967)" for each switch that the change moved.
void append_moves(const ChangeInfo& change, std::string& to) {
  for (const SwitchInfo& s : switches())
    for (const SwitchInfo::Value& v : s.values)
      if (v.since == change.name) to += fmt::format("{}{} {} ({})", to.empty() ? "" : "; ", s.name, v.name, change.name);
}

// The first run of releases stands for all changes up to it.
Table release_table() {
  Table out{{"releases", "adds", "moves"}};
  std::size_t next = 0;
  for (const ReleaseInfo& r : releases()) {
    const std::size_t first = next;
    std::string adds, moves;
    for (; next <= static_cast<std::size_t>(r.newest); ++next) {
      if (out.size() > 1) adds += fmt::format("{}{}", next > first ? ", " : "", changes()[next].name);
      append_moves(changes()[next], moves);
    }
    if (out.size() == 1) adds = fmt::format("{} to {}", changes()[first].name, changes()[next - 1].name);
    out.push_back({r.first == r.last ? std::string(r.first) : fmt::format("{} to {}", r.first, r.last), adds, moves.empty() ? "nothing" : moves});
  }
  return out;
}

Table change_table() {
  Table out{{"change", "first release", "what it did"}};
  for (const ChangeInfo& c : changes()) out.push_back({std::string(c.name), first_release(c.change), std::string(c.moved)});
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
  const auto behaviour = resolve_behaviour(AsOf{options.as_of, {}});
  if (!behaviour) {
    complain({"--as-of", behaviour.error().message});
    return bad_input;
  }
  say_what_is_taken_as("--as-of", options.as_of);
  const Table table = what == "engines"      ? engine_table()
                      : what == "behaviours" ? behaviour_table(options.as_of, *behaviour)
                      : what == "findings"   ? finding_table()
                      : what == "releases"   ? release_table()
                      : what == "changes"    ? change_table()
                      : what == "buffers"    ? buffer_table()
                      : what == "entries"    ? entry_table()
                      : what == "rules"      ? rule_table()
                                             : exit_code_table();
  out.print(report::Listing{.what = what, .table = table});
  return clean;
}

}  // namespace gradledger::tool
