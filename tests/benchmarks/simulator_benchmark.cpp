// How many script events a second the host executor runs: 8 virtual ranks, buffers of 16 elements, one core. An event counts once for
// each rank that runs it.
#include <benchmark/benchmark.h>

#include "sim/execution/host_executor.h"
#include "sim/load.h"

namespace gradledger {
namespace {

constexpr int windows = 64;
constexpr int micro_batches = 4;

Scenario scenario_of(std::uint32_t stage, bool offload) {
  const std::string config = R"({"gradient_accumulation_steps": 4, "gradient_clipping": 0, "zero_optimization": {"stage": )" + std::to_string(stage) +
                             (offload ? R"(, "offload_optimizer": {"device": "cpu"})" : "") + "}}";
  const std::string text = R"({"name": "benchmark", "world_size": 8, "parameters": [{"name": "w", "numel": 16}],
    "engine": {"framework": "deepspeed", "config": )" +
                           config + R"(},
    "script": [{"repeat": {"times": )" +
                           std::to_string(windows * micro_batches) + R"(, "of": [{"backward": {}}, {"step": {}}]}}]})";
  auto scenario = read_scenario(text, ".");
  expects(scenario.ok(), "the benchmark's scenario is admitted");
  return std::move(scenario).value();
}

// Gradients from a table, so that the executor is measured and not a generator.
class TableSource final : public GradientSource {
 public:
  void gradient(std::uint32_t backward, std::uint32_t rank, std::uint32_t, std::uint64_t, std::span<double> out) const override {
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<double>((backward + rank + i) & 7);
  }
};

void run_events(benchmark::State& state, bool recorded, bool observe) {
  const Scenario scenario = scenario_of(static_cast<std::uint32_t>(state.range(0)), state.range(1) != 0);
  const auto timeline = make_timeline(scenario);
  const TableSource source;
  TraceSink sink;
  RunOptions options;
  options.linear = recorded;
  options.observe_events = observe;
  HostExecutor executor(scenario, *timeline);
  if (recorded) executor.run(source, options, sink);
  std::uint64_t operations = 0;
  for (auto _ : state) operations += executor.run(source, options, sink).operations;
  const auto events = static_cast<double>(state.iterations()) * static_cast<double>(timeline->events.size()) * scenario.world_size;
  state.counters["rank_events/s"] = benchmark::Counter(events, benchmark::Counter::kIsRate);
  state.counters["operations/event"] = static_cast<double>(operations) / events;
}

// The program was recorded before: what every pass of the ledger after the first costs.
void rank_events_recorded(benchmark::State& state) { run_events(state, true, false); }
// Engines write the program while it runs.
void rank_events_emitted(benchmark::State& state) { run_events(state, false, false); }
// A snapshot of every accumulator after every event, hashed.
void rank_events_observed(benchmark::State& state) { run_events(state, true, true); }

#define GRADLEDGER_ENGINES ->ArgNames({"stage", "offload"})->Args({0, 0})->Args({1, 0})->Args({2, 0})->Args({2, 1})->Args({3, 0})
BENCHMARK(rank_events_recorded) GRADLEDGER_ENGINES;
BENCHMARK(rank_events_emitted) GRADLEDGER_ENGINES;
BENCHMARK(rank_events_observed) GRADLEDGER_ENGINES;

}  // namespace
}  // namespace gradledger
