#include "verbs/recordings.h"

#include <algorithm>

#include <fmt/format.h>

#include "conformance/compare.h"
#include "conformance/files.h"
#include "conformance/judged/judge.h"
#include "conformance/loops/compare.h"
#include "conformance/megatron/compare.h"
#include "conformance/recording.h"
#include "conformance/torch/compare.h"
#include "conformance/trace/beside.h"
#include "sim/engine/engine.h"
#include "sim/frameworks/framework.h"
#include "sim/load.h"
#include "verbs/command.h"
#include "verbs/replay.h"
#include "verbs/trace_files.h"

namespace gradledger::verbs {
namespace {

using report::ConformRow;
using report::JudgeSummary;

ConformRow::Outcome outcome_of(conform::Outcome outcome) {
  switch (outcome) {
    case conform::Outcome::agrees: return ConformRow::Outcome::agrees;
    case conform::Outcome::differs: return ConformRow::Outcome::differs;
    case conform::Outcome::inexpressible: return ConformRow::Outcome::inexpressible;
  }
  return ConformRow::Outcome::inexpressible;
}

template <class Run>
Result<conform::Comparison> compared(const Result<Run>& run) {
  return run ? judge(*run) : run.error();  // the form's own
}

// Recordings of another form than DeepSpeed's.
struct Form {
  bool (*is)(const nlohmann::json& line);
  Result<conform::Comparison> (*compare)(const nlohmann::json& line);
};
constexpr Form forms[] = {{conform::torch::is_torch_run, [](const nlohmann::json& line) { return compared(conform::torch::read_torch_run(line)); }},
                          {conform::megatron::is_megatron_run, [](const nlohmann::json& line) { return compared(conform::megatron::read_megatron_run(line)); }},
                          {conform::loop_runs::is_loop_run, [](const nlohmann::json& line) { return compared(conform::loop_runs::read_loop_run(line)); }}};

const Form* form_of(const nlohmann::json& line) {
  const auto at = std::find_if(std::begin(forms), std::end(forms), [&](const Form& form) { return form.is(line); });
  return at == std::end(forms) ? nullptr : at;
}

// The framework that a line names, where it is not DeepSpeed.
std::optional<std::string> other_framework(const nlohmann::json& line) {
  if (!line.is_object() || !line.contains("framework") || !line["framework"].is_string() || line["framework"] == "deepspeed") return std::nullopt;
  return line["framework"].get<std::string>();
}

std::string text_at(const nlohmann::json& line, const char* key) { return line.contains(key) && line[key].is_string() ? line[key].get<std::string>() : "?"; }

// Of whichever framework the line is.
Result<conform::Comparison> comparison_of(const nlohmann::json& line) {
  if (const Form* form = form_of(line)) return form->compare(line);
  if (const auto framework = other_framework(line))
    return conform::Comparison{
        .name = text_at(line, "name"), .version = text_at(line, "version"), .outcome = conform::Outcome::inexpressible, .why = "framework \"" + *framework + "\" has no replay"};
  return compared(conform::read_run(line));
}

// Events times ranks of a recorded run that is judged: what it takes grows with the square of their number, and so many take seconds.
constexpr std::uint64_t rank_events_max = 1u << 14;

// ---- judged -----------------------------------------------------------------------------------------------------------------------------

// The runs of one file.
class FileJudge {
 public:
  FileJudge(const std::string& file, const std::string& only, const Options& options, const JudgeSink& sink, JudgeSummary& summary)
      : file_(file), only_(only), options_(options), sink_(sink), summary_(summary) {
    options_.producer = "recording";
  }

  // Errors: the line is no recording.
  std::optional<InputError> line(const nlohmann::json& document) {
    if (const auto framework = other_framework(document)) {
      ++runs_;
      leave_out(text_at(document, "name"), text_at(document, "version"), "of recordings in this form, those of DeepSpeed are judged; this one is of " + *framework);
      return std::nullopt;
    }
    const auto run = conform::read_run(document);
    if (!run) return run.error();
    if (!only_.empty() && run->name != only_) return std::nullopt;
    ++runs_;
    const auto recording = conform::express(*run);
    if (recording) return judge(*recording);
    if (recording.error().where != conform::inexpressible) return recording.error();
    leave_out(run->name, run->version, "cannot be expressed: " + recording.error().message);
    return std::nullopt;
  }

  std::uint64_t runs() const { return runs_; }

 private:
  std::optional<InputError> judge(const conform::Recording& recording) {
    const auto leave = [&](std::string why) { leave_out(recording.name, recording.version, std::move(why)); };
    if (!recording.refusal.empty()) leave("the framework refused the configuration (" + recording.refusal + "): there is no run");
    else if (auto timeline = make_timeline(recording.scenario); !timeline) leave("cannot be expressed: " + timeline.error().text());
    else if (timeline->events.size() * timeline->world_size > rank_events_max)
      leave(fmt::format("has more events than are judged together; expected at most {}, times ranks", rank_events_max));
    else judge(recording, std::move(timeline).value());
    return std::nullopt;
  }

  void judge(const conform::Recording& recording, Timeline timeline) {
    const Loaded loaded{file_, recording.scenario, std::move(timeline), std::string(engine_name(recording.scenario))};
    EventWatch lines;
    ref::Verdict verdict = conform::judge_alone(recording, loaded.timeline, &lines);
    explain(loaded, options_, verdict);
    report::Report report = report_of(loaded, options_, verdict, lines);
    report.command = judge_command({file_}, recording.name, options_);
    report.left_out = recording.left_out;
    summary_.add(report);
    sink_.report(report);
  }

  void leave_out(const std::string& run, const std::string& version, std::string why) {
    const report::NotJudgedRow row{run, version, std::move(why)};
    summary_.add(row);
    sink_.not_judged(row);
  }

  const std::string& file_;
  const std::string& only_;
  Options options_;
  const JudgeSink& sink_;
  JudgeSummary& summary_;
  std::uint64_t runs_ = 0;
};

InputError unrecorded(const std::string& file, const conform::PassNotRecorded& error) { return {file, error.what()}; }

// A trace of gradledger record, which is of one run.
void judge_trace(const std::string& file, const Options& given, const JudgeSink& sink, JudgeSummary& summary) {
  const auto complain = [&](const InputError& error) {
    ++summary.unreadable;
    sink.complain(error);
  };
  const auto trace = load_trace(file, given);
  if (!trace) return complain(trace.error());
  Options options = given;
  options.producer = "trace of " + origin_text((*trace)->origin);
  options.seed = (*trace)->origin.seed;
  EventWatch lines;
  ref::OracleOptions oracle = oracle_of_trace(options.seed);
  oracle.watch = &lines;
  try {
    const Loaded& loaded = (*trace)->loaded;
    ref::Verdict verdict = ref::judge(loaded.scenario, loaded.timeline, (*trace)->producer(), oracle);
    explain(loaded, options, verdict);
    report::Report report = report_of(loaded, options, verdict, lines);
    for (report::Finding& finding : report.findings) finding.race_command.clear();  // what is recorded has one schedule
    report.driver_notes = (*trace)->body.notes;
    report.trace_lacks = (*trace)->body.lacks;
    report.command = judge_command({file}, "", options);
    summary.add(report);
    sink.report(report);
    if (report.outcome() == report::Outcome::nothing_judged && !loaded.scenario.allow_open) sink.complain({file, "nothing was judged: " + report.coverage.nothing});
  } catch (const conform::PassNotRecorded& error) {
    complain(unrecorded(file, error));
  } catch (const ProgramsTooLarge&) {
    complain(programs_too_large((*trace)->loaded, options));
  }
}

void judge_file(const std::string& file, const std::string& run, const Options& options, const JudgeSink& sink, JudgeSummary& summary) {
  const auto trace = conform::is_trace(file);
  if (!trace) return sink.complain(trace.error());
  if (*trace) return judge_trace(file, options, sink, summary);
  FileJudge judge(file, run, options, sink, summary);
  const std::uint64_t judged_before = summary.judged(), unreadable_before = summary.unreadable;
  const auto complain = [&](const InputError& error) {
    ++summary.unreadable;
    sink.complain(error);
  };
  const auto error = conform::for_each_document(
      file, [&](const nlohmann::json& document) { return judge.line(document); }, complain);
  if (error) sink.complain(*error);
  if (error || summary.judged() > judged_before || summary.unreadable > unreadable_before) return;
  if (judge.runs() == 0) sink.complain({file, "has no run \"" + run + "\""});
  else sink.complain({file, fmt::format("nothing was judged: none of {} run{} shows a gradient that is due", judge.runs(), judge.runs() == 1 ? "" : "s")});
}

// A trace beside the simulator's run of its scenario.
Result<ConformRow> compare_trace(const std::string& file) {
  const Options options;
  const auto trace = load_trace(file, options);
  if (!trace) return trace.error();
  const Loaded& loaded = (*trace)->loaded;
  ConformRow row{loaded.scenario.name, loaded.scenario.engine.as_of.base, ConformRow::Outcome::agrees, "", 0, 0};
  if (!framework_of(loaded.scenario).simulated())
    return ConformRow{row.run, row.version, ConformRow::Outcome::inexpressible, "framework \"" + loaded.scenario.engine.framework + "\" has no replay", 0, 0};
  if (const auto refused = admission_error(loaded.scenario))
    return ConformRow{row.run, row.version, ConformRow::Outcome::inexpressible, "no engine here takes it: " + refused->text(), 0, 0};
  try {
    const auto replay = make_producer(loaded, options);
    // A fused optimizer is a kernel that drivers do not compile, and PyTorch's arithmetic stands in for it.
    const auto& optimizers = loaded.timeline.contract.optimizers;
    const bool weights = (*trace)->simulated() || std::none_of(optimizers.begin(), optimizers.end(), [](const OptimizerConfig& o) { return o.fused(); });
    conform::BesideProducer beside((*trace)->producer(), *replay, loaded.scenario, loaded.timeline, weights);
    ref::judge(loaded.scenario, loaded.timeline, beside, oracle_of_trace((*trace)->origin.seed));
    row.elements = beside.elements();
    row.why = beside.difference();
    if (!row.why.empty()) row.outcome = ConformRow::Outcome::differs;
    else if (row.elements == 0) row = {row.run, row.version, ConformRow::Outcome::inexpressible, "shows neither weights nor gradients that are applied", 0, 0};
  } catch (const conform::PassNotRecorded& error) {
    return unrecorded(file, error);
  } catch (const ProgramsTooLarge&) {
    return programs_too_large(loaded, options);
  }
  return row;
}

}  // namespace

report::ConformSummary conform(const std::vector<std::string>& files, const std::function<void(const ConformRow&)>& seen, const Complaint& complain) {
  report::ConformSummary summary;
  const auto unreadable = [&](const InputError& error) {
    ++summary.unreadable;
    complain(error);
  };
  const auto use = [&](const nlohmann::json& document) -> std::optional<InputError> {
    const auto comparison = comparison_of(document);
    if (!comparison) return comparison.error();
    const ConformRow row{comparison->name, comparison->version, outcome_of(comparison->outcome), comparison->why, comparison->elements, comparison->collectives};
    summary.add(row);
    seen(row);
    return std::nullopt;
  };
  for (const std::string& file : files) {
    const auto trace = conform::is_trace(file);
    if (!trace) {
      complain(trace.error());
    } else if (*trace) {
      const auto row = compare_trace(file);
      if (!row) {
        unreadable(row.error());
        continue;
      }
      summary.add(*row);
      seen(*row);
    } else if (const auto error = conform::for_each_document(file, use, unreadable)) {
      complain(*error);
    }
  }
  return summary;
}

JudgeSummary judge_recordings(const std::vector<std::string>& files, const std::string& run, const Options& options, const JudgeSink& sink) {
  JudgeSummary summary;
  summary.command = judge_command(files, run, options);
  for (const std::string& file : files) judge_file(file, run, options, sink, summary);
  return summary;
}

}  // namespace gradledger::verbs
