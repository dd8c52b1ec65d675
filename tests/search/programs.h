// Programs of streams for the search: written by hand, or drawn from a seed.
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "ref/probes.h"
#include "search/streams/stream_orders.h"
#include "sim/base/hash.h"
#include "tests/support/scripted_engine.h"

namespace gradledger::testing {

using Body = std::function<void(std::uint32_t rank, ProgramWriter&)>;

// A window of two micro-batches on `world` ranks, whose engines write `body` at the step and nothing before.
struct StreamProgram {
  Scenario scenario;
  Timeline timeline;
  ScriptedEngine::Hooks hooks;
  search::StreamOrderOptions options;

  StreamProgram(std::uint32_t world, const Body& body) : scenario(base_scenario(world, {8}, Dtype::float32)) {
    scenario.script = {backward(2), step()};
    timeline = *make_timeline(scenario);
    hooks.handle = [body](std::uint32_t rank, const Event& event, ProgramWriter& w) {
      if (event.is<events::Step>()) body(rank, w);
    };
    options.factory = [this](const EngineContext& c) { return std::make_unique<ScriptedEngine>(hooks, c.rank); };
    options.witnesses_max = 1u << 20;
  }
  StreamProgram(const StreamProgram&) = delete;
  StreamProgram& operator=(const StreamProgram&) = delete;

  search::StreamOrders explore(bool reduce = true) {
    options.reduce = reduce;
    return search::explore_streams(scenario, timeline, options);
  }
  search::StreamEnd end_of(const search::StreamWitness& witness) const {
    const auto end = search::replay_streams(scenario, timeline, options, witness.decisions);
    expects(end.has_value(), "a witness replays");
    return *end;
  }
};

using Contents = std::vector<std::vector<std::vector<std::byte>>>;  // by rank and buffer

// What the executor leaves in memory under a schedule, and whether it came to the end.
inline std::pair<Contents, bool> executed(const Scenario& scenario, const Timeline& timeline, const EngineFactory& factory, const Schedule& schedule) {
  HostExecutor executor(scenario, timeline, CollectiveArithmetic::nccl_ring, factory);
  const auto gradients = ref::value_source(scenario, timeline, GradientKind::normal, 0);
  const ref::PlantedSource source(*gradients, timeline);
  RunOptions run;
  run.linear = true;
  run.observe_events = false;
  run.schedule = schedule;
  TraceSink nobody;
  const bool completed = executor.run(source, run, nobody).completed;
  Contents all;
  for (const Rank& rank : executor.ranks()) {
    all.emplace_back();
    for (BufferId b = 0; b < rank.program.buffers.size(); ++b) all.back().push_back(rank.memory.storage(b).bytes);
  }
  return {std::move(all), completed};
}

inline std::set<std::uint64_t> memory_outcomes(const search::StreamOrders& orders) {
  std::set<std::uint64_t> all;
  for (const search::StreamWitness& witness : orders.witnesses) all.insert(witness.outcome.memory);
  return all;
}

// A program of `operations` a rank, drawn: work of every kind on three device streams and the host, waits for some of it, and collectives
// that the ranks may call on different streams.
class DrawnProgram {
 public:
  DrawnProgram(std::uint64_t seed, std::uint32_t world, std::uint32_t operations) : seed_(seed), world_(world), operations_(operations) {}

  void operator()(std::uint32_t rank, ProgramWriter& w) const {
    SplitMix64 random(hash_keys({seed_, rank})), common(hash_keys({seed_, 1u << 20}));
    std::vector<Slice> buffers;
    std::vector<std::uint32_t> recorded;
    for (int b = 0; b < 3; ++b) {
      OnStream host(w, Stream::host);
      buffers.push_back(w.whole(w.declare("b" + std::to_string(b), Dtype::float32, 4)));
      w.allocate(buffers.back().buffer);
      w.fill(buffers.back(), 0.5 + b + 10.0 * rank);
    }
    for (std::uint32_t i = 0; i < operations_; ++i) {
      const bool collective = world_ > 1 && common.below(4) == 0;
      constexpr Stream devices[] = {Stream::compute, Stream::communication, Stream::copy};
      OnStream there(w, random.below(12) == 0 && !collective ? Stream::host : devices[random.below(3)]);
      if (collective) call(common, buffers, w);
      else work(random, buffers, recorded, hash_keys({seed_, rank, i}) % 1000, w);
    }
  }

 private:
  void call(SplitMix64& common, const std::vector<Slice>& buffers, ProgramWriter& w) const {
    const Slice in = buffers[common.below(3)], out = buffers[common.below(3)];
    if (common.below(3) == 0) w.collective({.kind = CollectiveKind::broadcast, .input = in, .output = in});
    else w.collective({.input = in, .output = out});
  }

  static void work(SplitMix64& random, const std::vector<Slice>& buffers, std::vector<std::uint32_t>& recorded, std::uint64_t value, ProgramWriter& w) {
    const Slice a = half(random, buffers[random.below(3)]), b = buffers[random.below(3)];
    const Slice source = {b.buffer, b.offset, a.numel};
    switch (random.below(11)) {
      case 0: return w.fill(a, static_cast<double>(value));
      case 1: return w.copy(a, source);
      case 2: return w.accumulate(a, source);
      case 3: return w.multiply(a, 1.5);
      case 4: return w.deposit(a, static_cast<std::uint32_t>(value % 2), 0, 0, 1.0, random.below(2) != 0);
      case 5:
      case 6: recorded.push_back(w.record()); return;
      case 7:
      case 8:
        if (!recorded.empty()) w.wait(recorded[random.below(static_cast<std::uint32_t>(recorded.size()))]);
        return;
      case 9:
        if (random.below(4) != 0) return w.accumulate(a, source);
        w.release(a.buffer);
        return w.allocate(a.buffer);
      default:
        if (random.below(3) == 0) w.synchronize();
        else if (random.below(3) == 0) w.report(StepFact::gradient_norm, b.part(0, 1), 1.0);
        else w.fill(a, static_cast<double>(value + 1000));
    }
  }

  static Slice half(SplitMix64& random, Slice slice) { return random.below(2) == 0 ? slice : slice.part(random.below(2) * 2, 2); }

  std::uint64_t seed_;
  std::uint32_t world_, operations_;
};

}  // namespace gradledger::testing
