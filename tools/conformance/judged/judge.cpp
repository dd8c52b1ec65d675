#include "tools/conformance/judged/judge.h"

#include <set>

#include <fmt/format.h>

#include "ref/describe.h"
#include "report/version/version.h"
#include "sim/load.h"
#include "tools/conformance/judged/recorded_producer.h"

namespace gradledger::conform {
namespace {

using nlohmann::ordered_json;

std::string_view name_of(JudgedAs outcome) {
  switch (outcome) {
    case JudgedAs::clean: return "clean";
    case JudgedAs::findings: return "findings";
    case JudgedAs::not_judged: return "not judged";
  }
  return "";
}

Judged not_judged(const std::string& name, const std::string& version, std::string why) { return {name, version, JudgedAs::not_judged, std::move(why), {}}; }

// What of a run the verdict leaves out, in words; empty: nothing.
std::string left_out_of(const Recording& recording, const ref::Verdict& verdict) {
  std::vector<std::string> out;
  if (!recording.left_out.empty()) out.push_back(recording.left_out);
  for (std::size_t reason = 0; reason < ref::reasons_not_due; ++reason)
    if (const std::uint64_t n = verdict.coverage.not_judged[reason])
      out.push_back(fmt::format("{} snapshot{} ({})", n, n == 1 ? "" : "s", ref::name_of(static_cast<ref::NotDue>(reason))));
  if (verdict.values.inconclusive > 0) out.push_back(fmt::format("{} elements whose reference is not finite, or that rounding hides", verdict.values.inconclusive));
  if (verdict.inconclusive_rows > 0) out.push_back(fmt::format("{} rows of the ledger in part: no element of theirs tells all contributions apart", verdict.inconclusive_rows));
  std::set<StepFact> missing;
  for (const ref::MissingFact& fact : verdict.coverage.missing) missing.insert(fact.fact);
  for (const StepFact fact : missing) out.push_back(fmt::format("{} of steps, which the recording does not tell", gradledger::name_of(fact)));
  if (!verdict.coverage.not_shown.empty()) out.push_back(fmt::format("{} steps after which no weights were recorded", verdict.coverage.not_shown.size()));
  return fmt::format("{}", fmt::join(out, "; "));
}

}  // namespace

Result<Judged> judge_alone(const RecordedRun& run) {
  const auto recording = express(run);
  if (recording) return judge_alone(*recording);
  if (recording.error().where != inexpressible) return recording.error();
  return not_judged(run.name, run.version, "cannot be expressed: " + recording.error().message);
}

Judged judge_alone(const Recording& recording) {
  if (!recording.refusal.empty()) return not_judged(recording.name, recording.version, "the framework refused the configuration (" + recording.refusal + "): there is no run");
  const auto timeline = make_timeline(recording.scenario);
  if (!timeline) return not_judged(recording.name, recording.version, "cannot be expressed: " + timeline.error().text());
  RecordedProducer producer(recording, *timeline);
  Judged out{recording.name, recording.version, JudgedAs::clean, "", ref::judge(recording.scenario, *timeline, producer, {})};
  out.why = left_out_of(recording, out.verdict);
  if (!out.verdict.judged()) {
    out.outcome = JudgedAs::not_judged;
    out.why = out.verdict.coverage.nothing;
  } else if (!out.verdict.clean()) {
    out.outcome = JudgedAs::findings;
  }
  return out;
}

std::string text_of(const Judged& judged) {
  std::string out = fmt::format("{:20}{} at {}", name_of(judged.outcome), judged.name, judged.version);
  if (judged.outcome == JudgedAs::not_judged) return out + ": " + judged.why + "\n";
  out += fmt::format(": {} snapshots judged{}{}\n", judged.verdict.coverage.judged, judged.why.empty() ? "" : "; not judged: ", judged.why);
  for (const ref::Finding& finding : judged.verdict.findings) out += "    " + finding.sentence + "\n";
  return out;
}

ordered_json json_of(const Judged& judged) {
  ordered_json findings = ordered_json::array();
  for (const ref::Finding& f : judged.verdict.findings) {
    ordered_json contributions = ordered_json::array(), alike = ordered_json::array();
    for (const ref::Miscounted& m : f.contributions)
      contributions.push_back(
          {{"step", m.contribution.step}, {"rank", m.contribution.rank}, {"micro_batch", m.contribution.micro_batch}, {"expected", m.expected}, {"observed", m.observed}});
    for (const Contribution& c : f.alike) alike.push_back({{"step", c.step}, {"rank", c.rank}, {"micro_batch", c.micro_batch}});
    findings.push_back({{"class", ref::name_of(f.finding)},
                        {"step", f.step},
                        {"event", f.event},
                        {"rank", f.rank},
                        {"buffer", f.buffer},
                        {"contributions", std::move(contributions)},
                        {"alike", std::move(alike)},
                        {"sentence", f.sentence}});
  }
  return {{"run", judged.name},
          {"version", judged.version},
          {"outcome", name_of(judged.outcome)},
          {"not_judged", judged.why},
          {"snapshots_judged", judged.verdict.coverage.judged},
          {"elements_judged", judged.verdict.values.elements},
          {"unexplained", judged.verdict.unexplained.size()},
          {"findings", std::move(findings)}};
}

void JudgedTotals::add(const Judged& judged) {
  clean += judged.outcome == JudgedAs::clean;
  with_findings += judged.outcome == JudgedAs::findings;
  not_judged += judged.outcome == JudgedAs::not_judged;
  snapshots += judged.verdict.coverage.judged;
  snapshots_not_judged += judged.verdict.coverage.snapshots() - judged.verdict.coverage.judged;
  elements += judged.verdict.values.elements;
  unexplained += judged.verdict.unexplained.size();
  std::set<std::string> shown;
  for (const ref::Finding& f : judged.verdict.findings) shown.insert(std::string(ref::name_of(f.finding)));
  for (const std::string& name : shown) ++classes[name];
}

std::string text_of(const JudgedTotals& totals) {
  std::string out;
  for (const auto& [name, runs] : totals.classes) out += fmt::format("{:20}in {} run{}\n", name, runs, runs == 1 ? "" : "s");
  return out + fmt::format("{} clean, {} with findings, {} not judged; {} snapshots of {} elements judged, {} not. No recording tells: {}\n", totals.clean, totals.with_findings,
                           totals.not_judged, totals.snapshots, totals.elements, totals.snapshots_not_judged, recordings_do_not_tell);
}

ordered_json json_of(const JudgedTotals& totals) {
  return {{"schema_version", 1},
          {"tool", report::tool_json()},
          {"clean", totals.clean},
          {"with_findings", totals.with_findings},
          {"not_judged", totals.not_judged},
          {"snapshots_judged", totals.snapshots},
          {"snapshots_not_judged", totals.snapshots_not_judged},
          {"elements_judged", totals.elements},
          {"unexplained", totals.unexplained},
          {"runs_by_class", totals.classes},
          {"recordings_do_not_tell", recordings_do_not_tell}};
}

}  // namespace gradledger::conform
