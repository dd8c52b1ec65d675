// What the check of stream order costs: the same replay with and without it, one after the other, so that their ratio is of one machine
// at one time.
#include <benchmark/benchmark.h>

#include <chrono>

#include "ref/oracle.h"
#include "sim/execution/happens_before.h"
#include "sim/execution/host_executor.h"
#include "sim/load.h"

namespace gradledger {
namespace {

Scenario scenario_of(std::uint32_t stage, std::uint64_t numel, std::uint32_t windows) {
  const std::string text = R"({"name": "benchmark", "world_size": 8, "parameters": [
      {"name": "a", "numel": )" +
                           std::to_string(numel) + R"(}, {"name": "b", "numel": )" + std::to_string(numel) + R"(}, {"name": "c", "numel": )" + std::to_string(numel) + R"(}],
    "engine": {"framework": "deepspeed", "config": {"gradient_accumulation_steps": 4, "gradient_clipping": 0,
      "zero_optimization": {"overlap_comm": true, "reduce_bucket_size": )" +
                           std::to_string(numel) + R"(, "stage": )" + std::to_string(stage) + R"(}}},
    "script": [{"repeat": {"times": )" +
                           std::to_string(4 * windows) + R"(, "of": [{"backward": {}}, {"step": {}}]}}]})";
  auto scenario = read_scenario(text, ".");
  expects(scenario.ok(), "the benchmark's scenario is admitted");
  return std::move(scenario).value();
}

double seconds(const Scenario& scenario, const Timeline& timeline, bool check) {
  const auto start = std::chrono::steady_clock::now();
  HostExecutor producer(scenario, timeline);
  ref::OracleOptions options;
  options.check_streams = check;
  benchmark::DoNotOptimize(ref::judge(scenario, timeline, producer, options).clean());
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void replay_with_and_without_check(benchmark::State& state) {
  const Scenario scenario = scenario_of(static_cast<std::uint32_t>(state.range(0)), static_cast<std::uint32_t>(state.range(1)), 8);
  const auto timeline = make_timeline(scenario);
  double with = 0, without = 0;
  for (auto _ : state) {
    without += seconds(scenario, *timeline, false);
    with += seconds(scenario, *timeline, true);
  }
  state.counters["with/without"] = with / without;
}
BENCHMARK(replay_with_and_without_check)->ArgNames({"stage", "numel"})->ArgsProduct({{0, 1, 2, 3}, {16, 4096}})->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace gradledger
