// SARIF 2.1.0. Its rules are the classes of findings; a result is a class on an engine in a family of buffers, however often a scenario shows it.
#include <map>
#include <tuple>

#include <fmt/format.h>

#include "ref/finding.h"
#include "report/escape.h"
#include "report/json_parts.h"
#include "report/results.h"

namespace gradledger::report {
namespace {

struct Rule {
  std::string id, meaning, seen_as;
};

const std::vector<Rule>& rules() {
  static const std::vector<Rule> all = [] {
    std::vector<Rule> out;
    for (const ref::FindingClassInfo& info : ref::finding_classes()) out.push_back({std::string(info.name), std::string(info.meaning), std::string(info.seen_as)});
    out.push_back({unmet_expectation, "a scenario does not show what its \"expect\" says", "a finding, a count, an allocation or a value that was expected and is not there"});
    out.push_back({bad_scenario, "a file is no scenario that can be judged", "an error with the place in the file and what would be right there"});
    return out;
  }();
  return all;
}

std::size_t index_of(const std::string& rule) {
  for (std::size_t i = 0; i < rules().size(); ++i)
    if (rules()[i].id == rule) return i;
  return index_of(unmet_expectation);
}

ordered_json text_json(const std::string& text) { return {{"text", printable_text(text)}}; }

ordered_json rule_json(const Rule& rule) {
  const std::string help = fmt::format("{}: {}. In a report it shows as: {}. `gradledger list findings` has all classes.", rule.id, rule.meaning, rule.seen_as);
  return {{"id", rule.id},
          {"shortDescription", text_json(rule.meaning)},
          {"fullDescription", text_json(fmt::format("{}. Seen as: {}.", rule.meaning, rule.seen_as))},
          {"help", {{"text", help}, {"markdown", fmt::format("**{}**: {}\n\nSeen as: {}\n", rule.id, rule.meaning, rule.seen_as)}}},
          {"defaultConfiguration", {{"level", "error"}}},
          {"properties", {{"tags", {"gradients", "correctness"}}}}};
}

ordered_json artifact_json(const std::string& file) {
  ordered_json out{{"uri", path_uri(file)}};
  if (!file.starts_with('/')) out["uriBaseId"] = "%SRCROOT%";
  return out;
}

ordered_json location_json(const CaseResult& of, const Problem& problem) {
  ordered_json place{{"artifactLocation", artifact_json(of.file)}};
  if (problem.at.known()) place["region"] = {{"startLine", problem.at.line}, {"startColumn", problem.at.column}};
  ordered_json out{{"physicalLocation", std::move(place)}};
  out["logicalLocations"] = {{{"name", printable_line(of.name)}, {"fullyQualifiedName", printable_line(of.name + problem.pointer)}}};
  return out;
}

// What stays when lines, scenarios or events change places. Of a file that is no scenario its name is all that there is.
ordered_json fingerprints_json(const CaseResult& of, const Problem& problem) {
  ordered_json out{{"scenarioName/v1", fingerprint(of.name, problem.rule, of.engine, problem.family)}};
  if (!of.identity.empty()) out["scenarioContent/v1"] = fingerprint(of.identity, problem.rule, of.engine, problem.family);
  return out;
}

ordered_json result_json(const CaseResult& of, const std::vector<const Problem*>& alike) {
  const Problem& first = *alike.front();
  ordered_json out{{"ruleId", rules()[index_of(first.rule)].id}, {"ruleIndex", index_of(first.rule)}, {"level", "error"}};
  const std::size_t more = alike.size() - 1;
  out["message"] = text_json(first.text + (more > 0 ? fmt::format(" And {} more like it.", more) : ""));
  out["locations"] = ordered_json::array();
  if (!of.file.empty()) out["locations"].push_back(location_json(of, first));
  out["partialFingerprints"] = fingerprints_json(of, first);
  out["occurrenceCount"] = alike.size();
  out["properties"] = {{"scenario", printable_line(of.name)},
                       {"engine", of.engine},
                       {"asOf", of.as_of},
                       {"producer", of.producer},
                       {"family", first.family},
                       {"command", of.command},
                       {"seconds", of.seconds},
                       {"pointer", first.pointer}};
  return out;
}

ordered_json results_json(const Results& results) {
  ordered_json out = ordered_json::array();
  for (const CaseResult& of : results.cases) {
    std::vector<std::vector<const Problem*>> groups;  // in the order of the report
    std::map<std::tuple<std::string, std::string, std::string>, std::size_t> known;
    for (const Problem& problem : of.problems) {
      // What is expected and not met has no class: each is one of its own.
      const bool of_class = problem.rule != unmet_expectation && problem.rule != bad_scenario;
      const auto [place, added] = known.try_emplace({problem.rule, problem.family, of_class ? "" : problem.text}, groups.size());
      if (added) groups.emplace_back();
      groups[place->second].push_back(&problem);
    }
    for (const auto& group : groups) out.push_back(result_json(of, group));
  }
  return out;
}

// What did not run, and why: nothing that somebody could put right in a file.
ordered_json notifications_json(const Results& results) {
  ordered_json out = ordered_json::array();
  for (const CaseResult& of : results.cases) {
    const bool broke = of.status == Status::error && of.problems.empty();
    if (!broke && of.status != Status::not_run) continue;
    ordered_json one{{"level", broke ? "error" : "note"}, {"message", text_json(of.name + ": " + of.why)}};
    if (!of.file.empty()) one["locations"] = {{{"physicalLocation", {{"artifactLocation", artifact_json(of.file)}}}}};
    out.push_back(std::move(one));
  }
  return out;
}

}  // namespace

std::string sarif(const Results& results) {
  ordered_json driver{{"name", "gradledger"}, {"version", fmt::format("{} ({})", results.tool.number, results.tool.commit)}, {"semanticVersion", results.tool.number}};
  driver["rules"] = ordered_json::array();
  for (const Rule& rule : rules()) driver["rules"].push_back(rule_json(rule));
  ordered_json invocation{
      {"commandLine", printable_line(results.command)}, {"executionSuccessful", results.count(Status::error) == 0}, {"toolExecutionNotifications", notifications_json(results)}};
  ordered_json run{{"tool", {{"driver", std::move(driver)}}}};
  run["automationDetails"] = {{"id", "gradledger/" + results.verb + "/"}};
  run["invocations"] = ordered_json::array({std::move(invocation)});
  run["columnKind"] = "unicodeCodePoints";
  run["results"] = results_json(results);
  run["properties"] = {{"seed", results.seed}, {"producer", results.producer}};
  ordered_json log{{"$schema", "https://json.schemastore.org/sarif-2.1.0.json"}, {"version", "2.1.0"}};
  log["runs"] = ordered_json::array({std::move(run)});
  return log.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace gradledger::report
