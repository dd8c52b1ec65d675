#include <algorithm>
#include <filesystem>
#include <set>

#include <fmt/format.h>

#include "verbs/compare.h"
#include "tools/gradledger/exit_codes.h"
#include "verbs/expectations.h"
#include "tools/gradledger/report.h"
#include "verbs/scenario_files.h"
#include "tools/gradledger/verbs.h"
#include "report/version/version.h"

namespace gradledger::tool {
namespace {

namespace fs = std::filesystem;

struct Outcome {
  std::string name;
  std::string expected, reported;
  std::vector<std::string> unmet;
  bool compared = false;
  bool input_error = false, unavailable = false, broken = false;
};

std::string classes_of(const std::set<std::string>& names) { return names.empty() ? "clean" : fmt::format("{}", fmt::join(names, ", ")); }

std::optional<InputError> compare(const Loaded& loaded, const Options& options, Outcome& outcome) {
  if (!loaded.scenario.expect.comparison) return std::nullopt;
  const ExpectedComparison& comparison = *loaded.scenario.expect.comparison;
  const fs::path with = loaded.path.parent_path() / comparison.with;
  std::error_code missing;
  if (fs::equivalent(with, loaded.path, missing))
    return InputError{loaded.path.string() + ": /expect/comparison/with", "names the scenario itself; expected another one"};
  const auto other = load(with, options);
  if (!other) return InputError{loaded.path.string() + ": /expect/comparison/with", other.error().text(), other.error().unavailable};
  const auto agree = applied_agree(loaded, **other, options);
  if (!agree) return agree.error();
  if (*agree != comparison.agree)
    outcome.unmet.push_back(fmt::format("the applied gradients {} those of {}, expected them to {}", *agree ? "agree with" : "differ from", comparison.with, comparison.agree ? "agree" : "differ"));
  return std::nullopt;
}

std::optional<InputError> check_twin(const Loaded& loaded, const Options& options) {
  if (loaded.scenario.twin_of.empty()) return std::nullopt;
  const fs::path twin = loaded.path.parent_path() / loaded.scenario.twin_of;
  const std::string where = loaded.path.string() + ": /twin_of";
  std::error_code missing;
  if (fs::equivalent(twin, loaded.path, missing)) return InputError{where, "names the scenario itself; expected another one"};
  if (const auto other = load(twin, options, Use::gate); !other) return InputError{where, other.error().text(), other.error().unavailable};
  return std::nullopt;
}

void fail(Outcome& outcome, const InputError& error) {
  outcome.unmet.push_back(error.text());
  (error.unavailable ? outcome.unavailable : outcome.input_error) = true;
}

// --compare: the other producer is what is expected.
void hold_to_each_other(const Loaded& loaded, const Options& options, Outcome& outcome) {
  outcome.expected = "equal";
  if (loaded.scenario.expect.accounting_only) {
    outcome.reported = "not compared: of accounting alone";
    return;
  }
  const Compared compared = compare_producers(loaded, options);
  outcome.reported = compared.difference ? "different" : text_of(compared, loaded, options);
  if (compared.difference) outcome.unmet.push_back(text_of(compared, loaded, options));
  outcome.compared = compared.runs > 0;
}

void hold_to_expectations(const Loaded& loaded, const Options& options, Outcome& outcome) {
  if (loaded.scenario.expect.accounting_only) {
    outcome.expected = "accounting only";
    for (std::string& line : unmet_in_dry_run(loaded, options)) outcome.unmet.push_back(std::move(line));
    outcome.reported = "not judged";
    return;
  }
  const Held held = run_for_expectations(loaded, options);
  std::set<std::string> expected, reported;
  for (const ExpectedFinding& f : loaded.scenario.expect.findings) expected.insert(f.finding);
  for (const ref::Finding& f : held.verdict.findings) reported.insert(std::string(name_of(f.finding)));
  outcome.expected = classes_of(expected);
  outcome.reported = held.verdict.judged() ? classes_of(reported) : "nothing judged";
  if (!held.verdict.judged() && !loaded.scenario.allow_open)
    fail(outcome, {loaded.path.string(), "nothing was judged: " + held.verdict.coverage.nothing + "; a scenario that means this says \"allow_open\": true"});
  for (std::string& line : unmet(loaded, held)) outcome.unmet.push_back(std::move(line));
  if (const auto error = compare(loaded, options, outcome)) fail(outcome, *error);
}

Outcome gate_one(const fs::path& path, const Options& options) {
  Outcome outcome{.name = path.string()};
  const auto loaded = load(path, options, Use::gate);
  if (!loaded) {
    fail(outcome, loaded.error());
    return outcome;
  }
  outcome.name = (*loaded)->scenario.name;
  say_what_is_taken_as(path.string(), (*loaded)->scenario);
  if (const auto error = check_twin(**loaded, options)) fail(outcome, *error);
  try {
    if (options.compare.empty()) hold_to_expectations(**loaded, options, outcome);
    else hold_to_each_other(**loaded, options, outcome);
  } catch (const ProgramsTooLarge&) {
    fail(outcome, programs_too_large(**loaded, options));
  } catch (const DeviceFailure& error) {
    outcome.unmet.emplace_back(error.what());
    outcome.broken = true;
  }
  return outcome;
}

nlohmann::ordered_json outcome_json(const Outcome& o) {
  return {{"schema_version", 1}, {"tool", tool_json()}, {"scenario", o.name}, {"passed", o.unmet.empty()}, {"expected", o.expected}, {"reported", o.reported}, {"unmet", o.unmet}};
}

}  // namespace

int gate(const std::vector<std::string>& paths, const Options& options) {
  if (paths.empty()) {
    complain({"", "PATH is required; expected scenario files, folders of them, or --mutants"});
    return bad_input;
  }
  const auto files = scenario_files(paths);
  if (!files) {
    complain(files.error());
    return bad_input;
  }
  std::vector<Outcome> outcomes;
  std::set<std::string> names;
  for (const fs::path& file : *files) {
    if (!outcomes.empty() && outcomes.back().broken) break;  // there are no devices any more
    outcomes.push_back(gate_one(file, options));
    if (!names.insert(outcomes.back().name).second) outcomes.back().unmet.push_back("the name is taken by another scenario of the corpus");
    if (options.json) fmt::print("{}\n", outcome_json(outcomes.back()).dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
  }
  const auto passed = std::count_if(outcomes.begin(), outcomes.end(), [](const Outcome& o) { return o.unmet.empty(); });
  const bool input_error = std::any_of(outcomes.begin(), outcomes.end(), [](const Outcome& o) { return o.input_error; });
  if (!options.json) {
    std::size_t width = 8, expected_width = 8;
    for (const Outcome& o : outcomes) {
      width = std::max(width, o.name.size());
      expected_width = std::max(expected_width, o.expected.size());
    }
    fmt::print("{:6}  {:<{}}  {:<{}}  {}\n", "", "scenario", width, "expected", expected_width, "reported");
    for (const Outcome& o : outcomes) {
      fmt::print("{:6}  {:<{}}  {:<{}}  {}\n", o.unmet.empty() ? "ok" : "FAILED", o.name, width, o.expected, expected_width, o.reported);
      for (const std::string& line : o.unmet) fmt::print("        {}\n", line);
    }
    fmt::print("{} passed, {} failed", passed, outcomes.size() - static_cast<std::size_t>(passed));
    fmt::print("{}\n", outcomes.size() < files->size() ? fmt::format(", {} not run", files->size() - outcomes.size()) : "");
  }
  if (outcomes.back().broken) {
    say(outcomes.back().unmet.back());
    return broken_run;
  }
  if (input_error) return bad_input;
  if (std::any_of(outcomes.begin(), outcomes.end(), [](const Outcome& o) { return o.unavailable; })) return unavailable;
  if (!options.compare.empty() && std::none_of(outcomes.begin(), outcomes.end(), [](const Outcome& o) { return o.compared; })) {
    complain({"--compare", "found nothing to compare: every scenario races or is of accounting alone"});
    return bad_input;
  }
  return static_cast<std::size_t>(passed) == outcomes.size() ? clean : findings;
}

}  // namespace gradledger::tool
