// What a symbolic judgement costs against ranks and against micro-batches, over four decades of each: the fit says with which power it grows.
#include <benchmark/benchmark.h>

#include "ref/oracle.h"
#include "sim/base/limits.h"
#include "sim/execution/host_executor.h"
#include "sim/load.h"

namespace gradledger {
namespace {

// One window of DeepSpeed, two parameters. defective: release 0.18.2, which keeps the last micro-batch alone (DeepSpeed#7981).
Scenario window_of(std::int64_t ranks, std::int64_t micro_batches, bool defective) {
  const std::string text = R"({"name": "benchmark", "world_size": )" + std::to_string(ranks) + R"(, "model_dtype": "bf16",
    "parameters": [{"name": "a", "numel": 65536}, {"name": "b", "numel": 65536}],
    "engine": {"framework": "deepspeed", "as_of": ")" +
                           (defective ? "0.18.2" : "0.18.9") + R"(", "config": {"gradient_accumulation_steps": )" + std::to_string(micro_batches) +
                           R"(, "bf16": {"enabled": true}, "zero_optimization": {"stage": 2}}},
    "script": [{"repeat": {"times": )" +
                           std::to_string(micro_batches) + R"(, "of": [{"backward": {}}, {"step": {}}]}}]})";
  auto scenario = read_scenario(text, ".");
  expects(scenario.ok(), "the benchmark's scenario is admitted");
  return std::move(scenario).value();
}

void judge_symbolically(benchmark::State& state, std::int64_t ranks, std::int64_t micro_batches, bool defective) {
  const Scenario scenario = window_of(ranks, micro_batches, defective);
  const auto timeline = make_timeline(scenario);
  ref::OracleOptions options;
  options.executor = ref::Executor::symbolic;
  options.listed_cells_max = limits::listed_cells_max;  // as a report has it
  for (auto _ : state) {
    HostExecutor executor(scenario, *timeline);
    const ref::Verdict verdict = ref::judge(scenario, *timeline, executor, options);
    expects(verdict.clean() != (defective && micro_batches > 1), "the window is judged, and is as right as the release");
  }
  state.SetComplexityN(state.range(0));
}

// 8 micro-batches: enough for rounds that repeat.
void by_ranks(benchmark::State& state) { judge_symbolically(state, state.range(0), 8, false); }
void by_ranks_defective(benchmark::State& state) { judge_symbolically(state, state.range(0), 8, true); }
void by_micro_batches(benchmark::State& state) { judge_symbolically(state, 8, state.range(0), false); }
void by_micro_batches_defective(benchmark::State& state) { judge_symbolically(state, 8, state.range(0), true); }

BENCHMARK(by_ranks)->RangeMultiplier(4)->Range(4, 65536)->Unit(benchmark::kMillisecond)->Complexity();
BENCHMARK(by_ranks_defective)->RangeMultiplier(4)->Range(4, 65536)->Unit(benchmark::kMillisecond)->Complexity();
BENCHMARK(by_micro_batches)->RangeMultiplier(4)->Range(1, 16384)->Unit(benchmark::kMillisecond)->Complexity();
BENCHMARK(by_micro_batches_defective)->RangeMultiplier(4)->Range(1, 16384)->Unit(benchmark::kMillisecond)->Complexity();

}  // namespace
}  // namespace gradledger
