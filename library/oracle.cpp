#include "gradledger/oracle.h"

#include <ostream>

#include <fmt/format.h>

#include "library/local_ranks.h"
#include "library/parts.h"
#include "report/json.h"
#include "report/of_verdict.h"
#include "report/terminal.h"
#include "sim/frameworks/framework.h"
#include "sim/judgement_bytes.h"
#include "sim/producers/driver/driver_producer.h"
#include "sim/scenario/identity.h"

namespace gradledger::library {
namespace {

constexpr std::size_t line_width = 160;

api::Contribution contribution_of(const Contribution& of, double expected, double observed, bool misplaced = false, bool open = false) {
  return {of.step, of.rank, of.micro_batch, expected, observed, misplaced, open};
}

std::vector<api::Elements> elements_of(const Scenario& scenario, const std::vector<ref::ElementRange>& ranges) {
  std::vector<api::Elements> out;
  for (const ref::ElementRange& range : ranges) out.push_back({scenario.parameters[range.parameter].name, range.begin, range.end});
  return out;
}

api::Finding finding_of(const api::detail::ScenarioParts& parts, const ref::Finding& f) {
  api::Finding out;
  out.finding_class = ref::name_of(f.finding);
  out.step = f.step;
  out.event = f.event;
  out.first_event = f.first_event;
  out.rank = f.rank;
  out.pointer = parts.timeline.pointers[parts.timeline.events[f.event].item];
  out.buffer = f.buffer;
  out.role = name_of(f.role);
  out.elements = elements_of(parts.scenario, f.elements);
  for (const ref::Miscounted& m : f.contributions) out.contributions.push_back(contribution_of(m.contribution, m.expected, m.observed));
  out.lost_weight = f.lost_weight;
  out.excess_weight = f.excess_weight;
  out.sentence = f.sentence;
  return out;
}

api::LedgerRow row_of(const Scenario& scenario, const ref::AppliedRow& row) {
  api::LedgerRow out{row.step, row.event, row.rank, row.buffer, elements_of(scenario, row.row.elements), {}};
  for (std::size_t i = 0; i < row.columns.size(); ++i)
    out.contributions.push_back(contribution_of(row.columns[i], row.row.expected[i], row.row.observed[i], row.row.misplaced_at(i), row.row.open_at(i)));
  return out;
}

// As the command's replay has it, but for what only a command knows.
report::Report shown(const api::detail::ScenarioParts& parts, const std::string& wrapper, const api::Options& options, const ref::Verdict& verdict) {
  const Scenario& s = parts.scenario;
  report::Report out;
  out.scenario = s.name;
  out.file = parts.file;
  out.note = s.note;
  out.framework = s.engine.framework;
  out.engine = wrapper;
  out.described = framework_of(s).described(s);
  out.as_of = s.engine.as_of;
  out.world_size = s.world_size;
  for (const Parameter& parameter : s.parameters) out.parameters.push_back(parameter.name);
  out.elements = s.numel();
  out.model_dtype = s.model_dtype;
  out.producer = "the wrapper, in this process";
  out.seed = options.seed;
  out.identity = content_identity(s);
  out.in_short = true;
  out.open = parts.timeline.open_window;
  for (const ref::Finding& f : verdict.findings) out.findings.push_back({f, parts.timeline.pointers[parts.timeline.events[f.event].item], {}, ""});
  report::take_verdict(verdict, out);
  return out;
}

// A run in this process costs next to nothing: each contribution is tried alone, as in the simulator. What a black box applied is known up to rounding, and is taken apart
// from few runs.
class LocalProducer final : public Producer {
 public:
  explicit LocalProducer(driver::DriverProducer& ranks) : ranks_(ranks) {}

  std::string_view name() const override { return ranks_.name(); }
  Capabilities capabilities() const override {
    Capabilities out = ranks_.capabilities();
    out.few_runs = !out.applied_gradients;
    return out;
  }
  RunSummary run(const GradientSource& source, const RunOptions& options, TraceSink& sink) override { return ranks_.run(source, options, sink); }

 private:
  driver::DriverProducer& ranks_;
};

}  // namespace

ref::Verdict judge(const Scenario& scenario, const Timeline& timeline, driver::DriverRanks& ranks, const api::Options& options, bool full_ledger) {
  if (options.headers != api::version())
    throw api::BadInput(
        fmt::format("the headers are of gradledger {}, and the library that is linked is of {}; expected both of one installation", options.headers, api::version()));
  if (const std::uint64_t bytes = judgement_bytes(scenario); bytes > options.memory_limit)
    throw api::BadInput(fmt::format("/parameters: need up to {} bytes to be judged; expected at most Options::memory_limit, {}", bytes, options.memory_limit));
  driver::DriverProducer played(scenario, timeline, ranks, options.seed);
  LocalProducer producer(played);
  ref::OracleOptions oracle;
  oracle.seed = oracle.schedule.seed = options.seed;
  oracle.full_ledger = full_ledger;
  try {
    return ref::judge(scenario, timeline, producer, oracle);
  } catch (const driver::NotRun& refused) {
    throw Refusal(!refused.by_driver(), refused.what());
  } catch (const RunFailure& broken) {
    throw api::BrokenRun(broken.what());
  }
}

api::Report report_of(const api::detail::ScenarioParts& parts, const std::string& wrapper, const api::Options& options, const ref::Verdict& verdict) {
  api::Report out;
  out.scenario = parts.scenario.name;
  for (const ref::Finding& f : verdict.findings) out.findings.push_back(finding_of(parts, f));
  for (const ref::AppliedRow& row : verdict.applied) out.ledger.push_back(row_of(parts.scenario, row));
  out.coverage = {verdict.coverage.snapshots(), verdict.coverage.judged, verdict.coverage.windows_closed, verdict.coverage.windows_judged, verdict.coverage.nothing};
  const report::Report whole = shown(parts, wrapper, options, verdict);
  out.text = report::Terminal({.width = line_width}).text(whole);
  out.json = report::renderer("json", {})->text(whole);
  return out;
}

namespace {

api::Report run(const api::Scenario& scenario, const std::string& wrapper, driver::DriverRanks& ranks, const api::Options& options) {
  const auto& parts = Access::parts(scenario);
  const api::Report out = report_of(parts, wrapper, options, judge(parts.scenario, parts.timeline, ranks, options, true));
  if (!out.judged() && !parts.scenario.allow_open) throw api::BadInput(scenario.name() + ": nothing was judged: " + out.coverage.nothing_judged);
  return out;
}

}  // namespace

}  // namespace gradledger::library

namespace gradledger::api {

Report run(const Scenario& scenario, const Ranks& wrapper, const Options& options) {
  library::LocalRanks ranks(wrapper, options.seed);
  return library::run(scenario, wrapper.abilities.name, ranks, options);
}

Report run(const Scenario& scenario, const Worlds& wrapper, const Options& options) {
  library::LocalWorld world(wrapper);
  return library::run(scenario, wrapper.abilities.name, world, options);
}

std::ostream& operator<<(std::ostream& out, const Report& report) { return out << report.text; }

std::string_view version() { return GRADLEDGER_VERSION; }

}  // namespace gradledger::api
