#include "verbs/gate.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include <fmt/format.h>

#include "search/campaign/parallel.h"
#include "sim/frameworks/framework.h"
#include "sim/load.h"
#include "sim/base/files.h"
#include "sim/scenario/identity.h"
#include "verbs/against.h"
#include "verbs/command.h"
#include "verbs/compare.h"
#include "verbs/expectations.h"
#include "verbs/findings.h"
#include "verbs/installed.h"
#include "verbs/new_file.h"
#include "verbs/scenario_files.h"
#include "verbs/update.h"

namespace gradledger::verbs {
namespace {

namespace fs = std::filesystem;
using report::GateRow;
using report::Problem;

std::string classes_of(const std::set<std::string>& names) { return names.empty() ? "clean" : fmt::format("{}", fmt::join(names, ", ")); }

std::optional<InputError> compare(const Loaded& loaded, const Options& options, GateRow& outcome) {
  if (!loaded.scenario.expect.comparison) return std::nullopt;
  const ExpectedComparison& comparison = *loaded.scenario.expect.comparison;
  const fs::path with = loaded.path.parent_path() / comparison.with;
  std::error_code missing;
  if (fs::equivalent(with, loaded.path, missing)) return InputError{loaded.place("/expect/comparison/with"), "names the scenario itself; expected another one"};
  const auto other = load(with, without_overrides(options));
  if (!other) return InputError{loaded.place("/expect/comparison/with"), other.error().text(), other.error().unavailable};
  const auto agree = applied_agree(loaded, **other, options);
  if (!agree) return agree.error();
  if (*agree != comparison.agree)
    outcome.unmet.emplace_back(
        fmt::format("the applied gradients {} those of {}, expected them to {}", *agree ? "agree with" : "differ from", comparison.with, comparison.agree ? "agree" : "differ"),
        report::unmet_expectation, "/expect/comparison");
  return std::nullopt;
}

std::optional<InputError> check_twin(const Loaded& loaded, const Options& options) {
  if (loaded.scenario.twin_of.empty()) return std::nullopt;
  const fs::path twin = loaded.path.parent_path() / loaded.scenario.twin_of;
  const std::string where = loaded.place("/twin_of");
  std::error_code missing;
  if (fs::equivalent(twin, loaded.path, missing)) return InputError{where, "names the scenario itself; expected another one"};
  if (const auto other = load(twin, without_overrides(options), Use::gate); !other) return InputError{where, other.error().text(), other.error().unavailable};
  return std::nullopt;
}

void fail(GateRow& outcome, const InputError& error) {
  outcome.unmet.push_back(report::problem_of(error, outcome.file));
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

std::set<std::string> reported_classes(const ref::Verdict& verdict) {
  std::set<std::string> out;
  for (const ref::Finding& f : verdict.findings) out.insert(std::string(name_of(f.finding)));
  return out;
}

// The classes that a baseline accepts of those reported; what it says of them is in the row.
std::vector<std::string> accepted(const Loaded& loaded, const std::set<std::string>& expected, const std::set<std::string>& reported, const GateManner& manner, GateRow& outcome) {
  std::vector<std::string> out;
  if (!manner.baseline) return out;
  for (const AcceptedFinding& a : manner.baseline->accepted) {
    if (a.scenario != loaded.scenario.name) continue;
    if (!reported.contains(a.finding) || expected.contains(a.finding)) {
      outcome.vanished.push_back(a.finding);
    } else if (a.expired) {
      outcome.unmet.push_back(fmt::format("{} was accepted until {}: {}", a.finding, a.expires, a.reason));
    } else {
      outcome.accepted.push_back({a.finding, a.reason, a.expires});
      out.push_back(a.finding);
    }
  }
  return out;
}

Loaded expecting_also(const Loaded& loaded, const std::vector<std::string>& classes) {
  Loaded out = loaded;
  for (const std::string& name : classes) out.scenario.expect.findings.emplace_back().finding = name;
  return out;
}

// Where the findings are others than expected. Whether that was all that was wrong is for the gate over the new file.
bool update(const Loaded& loaded, const Held& held, GateRow& outcome) {
  if (!held.verdict.judged() || outcome.unmet.empty()) return false;
  const auto text = updated_text(loaded, held);
  if (!text) {
    fail(outcome, text.error());
    return false;
  }
  const auto before = read_file(loaded.path);
  if (before && *before == *text) return false;
  const auto written = replace_file(loaded.path, *text);
  if (!written) fail(outcome, written.error());
  return written.ok();
}

// Whose they are and which known defect takes further runs, which are made where somebody will look.
void say_findings(const Loaded& loaded, const Options& options, const ref::Verdict& found, GateRow& outcome) {
  ref::Verdict verdict = found;
  if (outcome.failed()) explain(loaded, options, verdict);
  outcome.findings = findings_of(loaded, options, verdict.findings);
  outcome.parameters = parameter_names(loaded.scenario);
}

void hold_to_expectations(const Loaded& loaded, const Options& options, const GateManner& manner, GateRow& outcome) {
  if (loaded.scenario.expect.accounting_only) {
    outcome.expected = "accounting only";
    for (Problem& problem : unmet_in_dry_run(loaded, options)) outcome.unmet.push_back(std::move(problem));
    outcome.reported = "not judged";
    return;
  }
  const Held held = run_for_expectations(loaded, options);
  std::set<std::string> expected;
  const std::set<std::string> reported = reported_classes(held.verdict);
  for (const ExpectedFinding& f : loaded.scenario.expect.findings) expected.insert(f.finding);
  outcome.expected = classes_of(expected);
  outcome.reported = held.verdict.judged() ? classes_of(reported) : "nothing judged";
  if (!held.verdict.judged() && !loaded.scenario.allow_open)
    fail(outcome, {loaded.path.string(), "nothing was judged: " + held.verdict.coverage.nothing + "; a scenario that means this says \"allow_open\": true"});
  for (Problem& problem : unmet(expecting_also(loaded, accepted(loaded, expected, reported, manner, outcome)), held)) outcome.unmet.push_back(std::move(problem));
  outcome.updated = manner.update && update(loaded, held, outcome);
  if (const auto error = compare(loaded, options, outcome)) fail(outcome, *error);
  say_findings(loaded, options, held.verdict, outcome);
}

bool written_for(const Scenario& as_written, const Scenario& as_run) { return as_written.engine.as_of == as_run.engine.as_of; }

constexpr std::string_view not_seen_on_a_cpu = "stream-race";  // there is one stream, and nothing races, without --streams

Loaded expecting_what_is_seen(const Loaded& loaded, const Options& options) {
  Loaded out = loaded;
  if (options.streams.empty()) std::erase_if(out.scenario.expect.findings, [](const ExpectedFinding& f) { return f.finding == not_seen_on_a_cpu; });
  return out;
}

// An approximation that the contract allows shows no weights to a few runs, and a class that is named from weights cannot be held to them.
std::set<std::string> not_told(const ref::Verdict& verdict, const std::set<std::string>& expected) {
  std::set<std::string> out;
  if (!verdict.few_runs || verdict.inconclusive_rows.by_reason[static_cast<std::size_t>(ref::NotTold::approximated)] == 0) return out;
  const std::set<std::string> reported = reported_classes(verdict);
  for (const std::string& name : expected) {
    const auto finding = ref::finding_class_named(name);
    if (finding && ref::is_named_by_weights(*finding) && !reported.contains(name)) out.insert(name);
  }
  return out;
}

// What is left of the expectations is met, which makes none of the others so.
void leave_out(const std::set<std::string>& untold, GateRow& outcome) {
  if (!untold.empty() && outcome.unmet.empty()) outcome.not_run = fmt::format("expects {}, which few runs do not tell of an approximation", classes_of(untold));
}

// What the model of the framework reports at the release that is installed; nothing where there is no model, or it has no engine for this.
std::optional<std::set<std::string>> predicted(const Loaded& loaded, const Options& options) {
  if (!framework_of(loaded.scenario).simulated() || admission_error(loaded.scenario)) return std::nullopt;
  Options simulated = options;
  simulated.driver = nullptr;
  std::set<std::string> out;
  for (const ref::Finding& f : judge(loaded, simulated, nullptr).findings) out.insert(std::string(name_of(f.finding)));
  if (options.streams.empty()) out.erase(std::string(not_seen_on_a_cpu));
  return out;
}

// The weights of a real framework and those of its model.
void hold_to_the_model(const Loaded& loaded, const Options& options, GateRow& outcome) {
  const auto compared = against_model(loaded, options);
  if (!compared) {
    outcome.reported += ", weights not compared";
    return;
  }
  outcome.compared = compared->elements > 0;
  outcome.weights_compared = compared->elements;
  if (!compared->up_to.empty()) outcome.reported += ", weights compared up to " + compared->up_to;
  if (!compared->difference.empty()) outcome.unmet.push_back("the weights differ from the model's " + compared->difference);
}

// A real framework: what the file expects holds of the release that it is written for. Of another one the model says what is known to be
// wrong with it; where there is no model, the file's is all that there is.
void hold_real_to_what_is_known(const Loaded& loaded, const Options& options, const GateManner& manner, GateRow& outcome) {
  if (loaded.scenario.expect.accounting_only) {
    outcome.not_run = "expects accounting alone, which is the simulator's";
    return;
  }
  const ref::Verdict verdict = judge(loaded, options, nullptr, &outcome.driver_notes);
  Loaded seen = expecting_what_is_seen(loaded, options);
  std::set<std::string> expected;
  const std::set<std::string> reported = reported_classes(verdict);
  const auto as_written = load_scenario(loaded.path, options.overrides);
  const bool of_this_release = as_written && written_for(*as_written, loaded.scenario);
  const auto known = of_this_release ? std::nullopt : predicted(loaded, options);
  if (known) expected = *known;
  else
    for (const ExpectedFinding& f : seen.scenario.expect.findings) expected.insert(f.finding);
  outcome.expected = classes_of(expected) + (known ? " (by the model of this release)" : "");
  outcome.reported = verdict.judged() ? classes_of(reported) : "nothing judged";
  if (!verdict.judged() && !loaded.scenario.allow_open)
    fail(outcome, {loaded.path.string(), "nothing was judged: " + verdict.coverage.nothing + "; a scenario that means this says \"allow_open\": true"});
  const std::set<std::string> untold = not_told(verdict, expected);
  std::erase_if(seen.scenario.expect.findings, [&](const ExpectedFinding& f) { return untold.contains(f.finding); });
  std::erase_if(expected, [&](const std::string& name) { return untold.contains(name); });
  const std::vector<std::string> also = accepted(loaded, expected, reported, manner, outcome);
  if (options.against == "sim") hold_to_the_model(loaded, options, outcome);
  if (!known) {
    for (Problem& problem : unmet(expecting_also(seen, also), verdict)) outcome.unmet.push_back(std::move(problem));
    leave_out(untold, outcome);
    return say_findings(loaded, options, verdict, outcome);
  }
  expected.insert(also.begin(), also.end());
  if (reported == expected) {
    leave_out(untold, outcome);
    return say_findings(loaded, options, verdict, outcome);
  }
  outcome.unmet.push_back(fmt::format("reported are {}, and known of this release are {}", classes_of(reported), classes_of(expected)));
  for (const ref::Finding& f : verdict.findings)
    if (!expected.contains(std::string(name_of(f.finding)))) outcome.unmet.push_back(problem_of(loaded, f, f.sentence));
  say_findings(loaded, options, verdict, outcome);
}

// That the release is not known, and what it is taken as.
std::string note_of(const Loaded& loaded) {
  const Scenario& s = loaded.scenario;
  const auto note = framework_of(s).as_of_note(s.engine.as_of.base);
  return note ? loaded.place("/engine/as_of") + ": " + *note : "";
}

void say_what_ran(const Loaded& loaded, const Options& options, GateRow& outcome) {
  outcome.engine = loaded.engine;
  outcome.as_of = loaded.scenario.engine.as_of.base;
  outcome.producer = producer_text(options);
  outcome.command = repeat_command({loaded.path}, options);
  outcome.identity = content_identity(loaded.scenario);
  outcome.overrides = loaded.overrides;
}

GateRow gate_loaded(const fs::path& path, const Options& options, const GateManner& manner, GateRow outcome) {
  std::vector<InputError> errors;
  const auto loaded = load(path, options, Use::gate, &errors);
  if (!loaded) {
    for (const InputError& error : errors) fail(outcome, error);
    return outcome;
  }
  outcome.scenario = (*loaded)->scenario.name;
  outcome.note = note_of(**loaded);
  say_what_ran(**loaded, options, outcome);
  if (!options.driver)
    if (const auto error = check_twin(**loaded, options)) fail(outcome, *error);
  try {
    if (options.driver) hold_real_to_what_is_known(**loaded, options, manner, outcome);
    else if (options.compare.empty()) hold_to_expectations(**loaded, options, manner, outcome);
    else hold_to_each_other(**loaded, options, outcome);
  } catch (const ProgramsTooLarge&) {
    fail(outcome, programs_too_large(**loaded, options));
  } catch (const driver::NotRun& error) {
    outcome.not_run = error.what();
  } catch (const RunFailure& error) {
    outcome.unmet.emplace_back(error.what());
    outcome.broken = true;
  }
  locate(**loaded, outcome.unmet);
  return outcome;
}

GateRow gate_one(const fs::path& path, const Options& options, const GateManner& manner) {
  const double start = manner.seconds();
  GateRow outcome;
  outcome.file = outcome.scenario = path.string();
  outcome.seed = options.seed;
  try {
    outcome = gate_loaded(path, options, manner, outcome);
  } catch (const driver::NotRun& error) {
    outcome.not_run = error.what();
  }
  outcome.seconds = manner.seconds() - start;
  return outcome;
}

// The first time it has changed the file, the second time it is held to what it says now.
GateRow gate_and_update(const fs::path& path, const Options& options, const GateManner& manner) {
  GateRow first = gate_one(path, options, manner);
  if (!first.updated) return first;
  GateManner as_it_is = manner;
  as_it_is.update = false;
  GateRow again = gate_one(path, options, as_it_is);
  again.updated = true;
  return again;
}

// Scenarios that a baseline names and that the gate was not held over: they went, or have another name now.
std::vector<std::string> unused(const Baseline& baseline, const std::set<std::string>& names) {
  std::vector<std::string> out;
  for (const AcceptedFinding& a : baseline.accepted)
    if (!names.contains(a.scenario) && std::find(out.begin(), out.end(), a.scenario) == out.end()) out.push_back(a.scenario);
  return out;
}

}  // namespace

Result<report::GateReport> gate(const std::vector<std::string>& paths, const Options& options, const std::function<void(const GateRow&)>& seen, const GateManner& manner) {
  expects(!paths.empty(), "a gate is over something");
  const auto found = some_scenarios(paths);
  if (!found) return found.error();
  const Selected selected = select(found->files, manner.selection);
  report::GateReport out;
  out.files = selected.files.size();
  out.deselected = found->files.size() - out.files;
  for (const LeftOut& l : found->left_out) out.left_out.push_back({l.path.string(), l.why});
  std::vector<GateRow> rows(out.files);
  std::set<std::string> names;
  const auto hold = [&](std::size_t i) { rows[i] = gate_and_update(selected.files[i], options, manner); };
  const auto take = [&](std::size_t i) {
    GateRow& row = out.rows.emplace_back(std::move(rows[i]));
    if (!names.insert(row.scenario).second || selected.named_twice.contains(selected.files[i])) row.unmet.push_back("the name is taken by another scenario of the corpus");
    seen(row);
    if (row.broken && !options.driver) out.ended_by = "a broken run";  // there are no devices any more; processes are started again
    else if (row.failed() && manner.until_a_failure) out.ended_by = "-x";
    return out.ended_by.empty();
  };
  const std::uint32_t jobs = options.devices || options.driver ? 1 : manner.jobs;
  search::in_order(rows.size(), jobs, hold, take, [&] { return !manner.stop().empty(); });
  if (out.rows.size() == out.files) out.ended_by.clear();
  else if (out.ended_by.empty()) out.ended_by = manner.stop();
  names.insert(selected.names.begin(), selected.names.end());
  if (manner.baseline && manner.selection.everything_between_shards() && out.ended_by.empty()) out.unused = unused(*manner.baseline, names);
  return out;
}

}  // namespace gradledger::verbs
