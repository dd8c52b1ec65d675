#include "audit/replayer.h"

#include <algorithm>
#include <iterator>

#include <fmt/format.h>

#include "sim/base/hash.h"
#include "sim/load.h"
#include "sim/producers/producers.h"
#include "sim/scenario/parse.h"

namespace gradledger::audit {
namespace {

// Data of which every contribution has its own: integers up to 255 over 2^16, which every dtype holds, and fp16 also times a usual loss scale.
class OwnData final : public GradientSource {
 public:
  void gradient(std::uint32_t backward, std::uint32_t rank, std::uint32_t parameter, std::uint64_t offset, std::span<double> out) const override {
    for (std::size_t i = 0; i < out.size(); ++i) {
      const std::uint64_t drawn = hash_keys({backward, rank, parameter, offset + i});
      out[i] = (static_cast<double>(drawn % 511) - 255) / 65536;
    }
  }
};

// What a run shows beside its hashes.
class Events final : public TraceSink {
 public:
  void race(const RaceRecord& r) override {
    text += fmt::format("race {} {} {} {} {} {};", r.rank, r.buffer, r.begin, r.end, r.first.operation, r.second.operation);
    races = true;
  }
  void engine_error(const EngineErrorRecord& r) override { text += fmt::format("error {} {} {};", r.rank, r.event, r.message); }
  std::string text;
  bool races = false;
};

// What is asked of a finding that no report shows. What it lists by contribution grows with the square of the ranks.
ref::Finding in_brief(const ref::Finding& f) {
  ref::Finding out;
  out.finding = f.finding;
  out.step = f.step;
  out.event = f.event;
  out.rank = f.rank;
  out.sentence = f.sentence;
  return out;
}

// All of a scenario but its name and the state of the framework.
std::string script_text(Scenario scenario) {
  scenario.name = scenario.note = "";
  scenario.engine.as_of = {};
  scenario.expect = {};
  return to_json(scenario).dump();
}

}  // namespace

std::shared_ptr<const Replayer::Judged> Replayer::judged_anew(const Scenario& scenario, const Timeline& timeline, Producer& producer, ref::Executor executor, bool check_streams,
                                                              bool quick) {
  ref::OracleOptions oracle;
  oracle.seed = options_.seed;
  oracle.schedule.seed = options_.seed;
  oracle.executor = executor;
  // Where something races the oracle runs its other passes in the order of the script.
  oracle.check_streams = check_streams;
  ref::Verdict verdict = ref::judge(scenario, timeline, producer, oracle);
  Effects effects = effects_of(scenario, timeline, verdict);
  ++judged_;
  ref::Verdict kept;
  if (quick) std::transform(verdict.findings.begin(), verdict.findings.end(), std::back_inserter(kept.findings), in_brief);
  else kept.findings = std::move(verdict.findings);
  kept.left_out = std::move(verdict.left_out);
  kept.coverage = std::move(verdict.coverage);
  return std::make_shared<const Judged>(Judged{std::move(kept), std::move(effects)});
}

// recorder: of all that is read for this answer, from where the scenario was made.
std::shared_ptr<const Replayer::Judged> Replayer::judged_of(const Scenario& scenario, const Timeline& timeline, bool quick, const SwitchRecorder& recorder) {
  const CodeState state = code_state_of(scenario);
  const std::uint64_t needed = verbs::bytes_needed(scenario);
  // Where numbers do not fit there are weights alone, and no values that tell runs apart.
  const bool on_numbers = needed <= options_.memory_limit;
  std::list<Known>& known = known_[script_text(scenario)];
  const auto serves = [&](const Known& k) { return (k.quick == quick || (quick && !on_numbers)) && k.contract == timeline.contract; };
  for (const Known& k : known)
    if (serves(k) && same_for(k.reads, k.state, state)) {
      ++alike_;
      SwitchRecorder::note(k.reads);
      return k.judged;
    }
  const auto producer = gradledger::make_producer(scenario, timeline, {.program_bytes_max = options_.memory_limit - (on_numbers ? needed : 0)});
  const auto keep = [&](std::optional<Shown> shown, std::shared_ptr<const Judged> judged) {
    known.push_back({timeline.contract, quick, state, recorder.reads(), std::move(shown), judged});
    return judged;
  };
  // Streams cost a symbolic run nothing: what ranks have in common is then known too.
  if (!on_numbers) return keep(std::nullopt, judged_anew(scenario, timeline, *producer, ref::Executor::symbolic, true, quick));
  // A switch that was read may make no difference, in any operation, value or wait: one run tells.
  Events seen;
  const RunSummary run = producer->run(OwnData(), {.schedule = {.seed = options_.seed}, .check_streams = true}, seen);
  const Shown shown{run.trace_hash, run.value_hash, seen.text};
  for (const Known& k : known)
    if (serves(k) && k.shown == shown) {
      ++alike_;
      return keep(shown, k.judged);
    }
  return keep(shown, judged_anew(scenario, timeline, *producer, ref::Executor::both, !quick || seen.races, quick));
}

Answer Replayer::answer(const Variant& variant, bool quick) {
  const SwitchRecorder recorder;
  Answer out;
  auto read = scenario_of(setup_, variant);
  if (!read) {
    out.refused = read.error().text();
    return out;
  }
  out.scenario = std::make_shared<const Scenario>(std::move(read).value());
  const auto timeline = make_timeline(*out.scenario);
  if (!timeline) {
    out.refused = timeline.error().text();
    return out;
  }
  const auto judged = judged_of(*out.scenario, *timeline, quick, recorder);
  out.verdict = {judged, &judged->verdict};
  out.effects = judged->effects;
  return out;
}

// Its own timeline was made before; that it is made again is for what that reads of the framework.
const ref::Verdict& Replayer::judge_quickly(const Scenario& scenario, const Timeline& timeline) {
  const SwitchRecorder recorder;
  expects(make_timeline(scenario).ok(), "the scenario's own timeline");
  return judged_of(scenario, timeline, true, recorder)->verdict;
}

}  // namespace gradledger::audit
