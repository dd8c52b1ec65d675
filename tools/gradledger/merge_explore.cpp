// Explorations: every process wrote the whole report, so that each bears the others out.
#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "tools/gradledger/merge.h"
#include "tools/gradledger/output.h"

namespace gradledger::tool {
namespace {

using nlohmann::json;
using report::MergedExploration;

// All that a record says but for times.
json said(const json& record) {
  json out = record;
  out.erase("seconds");
  return out;
}

// Errors are each process's own: those that are left complain of the ones that are gone.
std::vector<const RecordLine*> told(const ShardReport& shard) {
  std::vector<const RecordLine*> out;
  for (const RecordLine& line : shard.records)
    if (line.value["record"] != "error") out.push_back(&line);
  return out;
}

std::string name_of(const RecordLine& line) { return "a record \"" + line.value["record"].get<std::string>() + "\""; }

// What one process says that another does not. One that died may have said less.
std::optional<InputError> differs(const ShardReport& one, const ShardReport& other) {
  const auto its = told(one), others = told(other);
  for (std::size_t i = 0; i < std::max(its.size(), others.size()); ++i) {
    if (i >= its.size() ? !one.summary.has_value() : i >= others.size() && !other.summary) return std::nullopt;
    const auto wrong = [&](const std::string& what) {
      return InputError{other.file, fmt::format("{}; expected what {} says: every process of one exploration writes the same", what, one.file)};
    };
    if (i >= others.size()) return wrong("lacks " + name_of(*its[i]));
    if (i >= its.size()) return wrong(fmt::format("has {} on line {}, which the other lacks", name_of(*others[i]), others[i]->number));
    if (said(its[i]->value) != said(others[i]->value)) return wrong(fmt::format("says something else on line {}, {}", others[i]->number, name_of(*others[i])));
  }
  if (one.summary && other.summary && said(*one.summary) != said(*other.summary)) return InputError{other.file, fmt::format("has another summary; expected that of {}", one.file)};
  return std::nullopt;
}

// As text has it. Throws what the library throws where something is not there or of another type.
report::FoundRow found_from(const json& in) {
  report::FoundRow out;
  in.at("class").get_to(out.finding);
  in.at("engine").get_to(out.engine);
  in.at("shape").get_to(out.shape);
  const json& blame = in.at("finding").at("blame");
  out.blame.whose = blame.at("whose") == ref::name_of(ref::Whose::usage) ? ref::Whose::usage : ref::Whose::framework;
  out.blame.rule = text_or_nothing(blame.at("rule"));
  return out;
}

MergedExploration engine_from(const RecordLine& line, std::vector<report::FoundRow> found, std::string records) {
  const json& in = line.value;
  MergedExploration out;
  report::ExploreReport& r = out.report;
  in.at("engine").get_to(r.engine);
  in.at("as_of").get_to(r.as_of);
  in.at("complete").get_to(r.complete);
  in.at("symmetric").get_to(r.symmetric);
  for (const auto& [name, count] : {std::pair{"length", &r.length}, std::pair{"depth", &r.depth}}) in.at(name).get_to(*count);
  for (const auto& [name, count] : {std::pair{"states", &r.states}, std::pair{"transitions", &r.transitions}, std::pair{"merged", &r.merged}, std::pair{"mirrored", &r.mirrored},
                                    std::pair{"refused", &r.refused}, std::pair{"undocumented", &r.undocumented}, std::pair{"wrong", &r.wrong}, std::pair{"compared", &r.compared},
                                    std::pair{"not_run", &r.not_run}})
    in.at(name).get_to(*count);
  in.at("seconds").get_to(r.seconds);
  r.found = std::move(found);
  out.records = std::move(records) + line.text + "\n";
  return out;
}

}  // namespace

std::optional<InputError> merge_exploration(const ShardReports& reports, const Output& out) {
  // The one that says most: of those that died, the one that got farthest.
  const ShardReport* most = nullptr;
  for (const auto& [number, shard] : reports.shards)
    if (!most || std::pair(shard.summary.has_value(), told(shard).size()) > std::pair(most->summary.has_value(), told(*most).size())) most = &shard;
  for (const auto& [number, shard] : reports.shards)
    if (const auto error = differs(*most, shard)) return error;
  std::vector<report::FoundRow> found;
  std::string records;
  std::uint64_t engines = 0;
  for (const RecordLine* line : told(*most)) {
    const std::string record = line->value["record"];
    if (record == "finding") {
      found.push_back(found_from(line->value));
      records += line->text + "\n";
    } else if (record == "engine") {
      out.print(engine_from(*line, std::exchange(found, {}), std::exchange(records, {})));
      ++engines;
    } else {
      return InputError{fmt::format("{}:{}", most->file, line->number), "is " + name_of(*line) + "; expected findings and engines, as explore --mpi writes them"};
    }
  }
  if (most->summary && most->summary->at("counts").value("engines", std::uint64_t{0}) != engines)
    return InputError{most->file, fmt::format("has {} records of engines, and its summary says otherwise; expected a report as it was written", engines)};
  return std::nullopt;
}

}  // namespace gradledger::tool
