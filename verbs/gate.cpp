#include "verbs/gate.h"

#include <filesystem>
#include <set>

#include <fmt/format.h>

#include "sim/frameworks/framework.h"
#include "verbs/compare.h"
#include "verbs/expectations.h"
#include "verbs/scenario_files.h"

namespace gradledger::verbs {
namespace {

namespace fs = std::filesystem;
using report::GateRow;

std::string classes_of(const std::set<std::string>& names) { return names.empty() ? "clean" : fmt::format("{}", fmt::join(names, ", ")); }

std::optional<InputError> compare(const Loaded& loaded, const Options& options, GateRow& outcome) {
  if (!loaded.scenario.expect.comparison) return std::nullopt;
  const ExpectedComparison& comparison = *loaded.scenario.expect.comparison;
  const fs::path with = loaded.path.parent_path() / comparison.with;
  std::error_code missing;
  if (fs::equivalent(with, loaded.path, missing)) return InputError{loaded.path.string() + ": /expect/comparison/with", "names the scenario itself; expected another one"};
  const auto other = load(with, options);
  if (!other) return InputError{loaded.path.string() + ": /expect/comparison/with", other.error().text(), other.error().unavailable};
  const auto agree = applied_agree(loaded, **other, options);
  if (!agree) return agree.error();
  if (*agree != comparison.agree)
    outcome.unmet.push_back(
        fmt::format("the applied gradients {} those of {}, expected them to {}", *agree ? "agree with" : "differ from", comparison.with, comparison.agree ? "agree" : "differ"));
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

void fail(GateRow& outcome, const InputError& error) {
  outcome.unmet.push_back(error.text());
  (error.unavailable ? outcome.unavailable : outcome.bad_input) = true;
}

// --compare: the other producer is what is expected.
void hold_to_each_other(const Loaded& loaded, const Options& options, GateRow& outcome) {
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

void hold_to_expectations(const Loaded& loaded, const Options& options, GateRow& outcome) {
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

// That the release is not known, and what it is taken as.
std::string note_of(const Loaded& loaded) {
  const Scenario& s = loaded.scenario;
  const auto note = framework_of(s).as_of_note(s.engine.as_of.base);
  return note ? loaded.path.string() + ": /engine/as_of: " + *note : "";
}

GateRow gate_one(const fs::path& path, const Options& options) {
  GateRow outcome;
  outcome.file = outcome.scenario = path.string();
  const auto loaded = load(path, options, Use::gate);
  if (!loaded) {
    fail(outcome, loaded.error());
    return outcome;
  }
  outcome.scenario = (*loaded)->scenario.name;
  outcome.note = note_of(**loaded);
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

}  // namespace

Result<report::GateReport> gate(const std::vector<std::string>& paths, const Options& options, const std::function<void(const GateRow&)>& seen) {
  expects(!paths.empty(), "a gate is over something");
  const auto files = scenario_files(paths);
  if (!files) return files.error();
  report::GateReport out;
  out.files = files->size();
  std::set<std::string> names;
  for (const fs::path& file : *files) {
    if (!out.rows.empty() && out.rows.back().broken) break;  // there are no devices any more
    out.rows.push_back(gate_one(file, options));
    if (!names.insert(out.rows.back().scenario).second) out.rows.back().unmet.push_back("the name is taken by another scenario of the corpus");
    seen(out.rows.back());
  }
  return out;
}

}  // namespace gradledger::verbs
