#include "audit/replayer.h"

#include <algorithm>

#include <fmt/format.h>

#include "sim/base/hash.h"
#include "sim/frameworks/history.h"
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

// All of a scenario but its name and the state of the framework.
std::string script_text(Scenario scenario) {
  scenario.name = scenario.note = "";
  scenario.engine.as_of = {};
  scenario.expect = {};
  return to_json(scenario).dump();
}

}  // namespace

ref::Verdict Replayer::judged_anew(const Scenario& scenario, const Timeline& timeline, Producer& producer, ref::Executor executor, bool check_streams) {
  ref::OracleOptions oracle;
  oracle.seed = options_.seed;
  oracle.schedule.seed = options_.seed;
  oracle.executor = executor;
  // Where something races the oracle runs its other passes in the order of the script.
  oracle.check_streams = check_streams;
  ref::Verdict out = ref::judge(scenario, timeline, producer, oracle);
  ++judged_;
  return out;
}

std::shared_ptr<const ref::Verdict> Replayer::verdict_of(const Scenario& scenario, const Timeline& timeline, bool quick) {
  const std::string script = script_text(scenario) + (quick ? " quick" : "");
  const History* history = framework_of(scenario).history();
  const auto behaviour = history ? history->behaviour_of(scenario.engine.as_of) : std::optional<std::string>(scenario.engine.as_of.base);
  const std::string key = script + behaviour.value_or(scenario.engine.as_of.base);
  if (const auto found = by_behaviour_.find(key); found != by_behaviour_.end()) {
    ++alike_;
    return found->second;
  }
  const std::uint64_t needed = verbs::bytes_needed(scenario);
  // Where numbers do not fit there are weights alone, and no values that tell runs apart.
  const bool on_numbers = needed <= options_.memory_limit;
  const auto producer = gradledger::make_producer(scenario, timeline, {.program_bytes_max = options_.memory_limit - (on_numbers ? needed : 0)});
  if (!on_numbers) return by_behaviour_[key] = std::make_shared<const ref::Verdict>(judged_anew(scenario, timeline, *producer, ref::Executor::symbolic, !quick));
  // Switches that a script never meets leave its run as it is, in every operation, value and wait: one run tells.
  Events seen;
  const RunSummary run = producer->run(OwnData(), {.schedule = {.seed = options_.seed}, .check_streams = true}, seen);
  for (const Known& k : known_)
    if (k.trace == run.trace_hash && k.values == run.value_hash && k.seen == seen.text && k.script == script && k.contract == timeline.contract) {
      ++alike_;
      return by_behaviour_[key] = k.verdict;
    }
  auto verdict = std::make_shared<const ref::Verdict>(judged_anew(scenario, timeline, *producer, ref::Executor::both, !quick || seen.races));
  known_.push_back({timeline.contract, script, run.trace_hash, run.value_hash, seen.text, verdict});
  return by_behaviour_[key] = verdict;
}

Answer Replayer::answer(const Variant& variant, bool quick) {
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
  out.verdict = verdict_of(*out.scenario, *timeline, quick);
  out.effects = effects_of(*out.scenario, *timeline, *out.verdict);
  return out;
}

}  // namespace gradledger::audit
