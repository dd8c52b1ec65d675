// All stream orders of a program with overlap on 4 ranks and 4 micro-batches, with a missing wait and with the wait: what the search takes.
#include <benchmark/benchmark.h>

#include <string>

#include "search/streams/stream_orders.h"
#include "sim/load.h"

namespace gradledger {
namespace {

struct Case {
  const char* name;
  std::uint32_t stage;
  const char* as_of;
  std::uint32_t bucket;     // elements
  const char* produced_on;  // the last parameter's stream
};

// Each with the change before which a wait, or what stands for it, was missing.
constexpr Case cases[] = {
    {"the stream that refills a bucket waits for no reduction; stage 1 reduces once", 1, "#5606", 4, "compute"},
    {"the same at stage 2, which reduces every micro-batch", 2, "#5606", 4, "compute"},
    {"a gradient is let go of while its reduction reads it; stage 2", 2, "#7965", 2, "compute"},
    {"a reduction does not wait for the second of two producers; stage 2", 2, "#8080", 8, "side"},
    {"a reduction waits for another stream than the producer's; stage 3", 3, "#7898", 8, "side"},
};

Scenario scenario_of(const Case& c, bool before) {
  const std::string text = R"({"name": "benchmark", "world_size": 4, "parameters": [{"name": "w0", "numel": 4}, {"name": "w1", "numel": 4},
      {"name": "w2", "numel": 4, "produced_on": ")" +
                           std::string(c.produced_on) + R"("}], "model_dtype": "fp32",
    "engine": {"framework": "deepspeed", "as_of": ")" +
                           (before ? "before " : "") + c.as_of + R"(", "optimizer": {"type": "SGD", "lr": 1.0},
      "config": {"gradient_accumulation_steps": 4, "gradient_clipping": 0,
        "zero_optimization": {"overlap_comm": true, "reduce_bucket_size": )" +
                           std::to_string(c.bucket) + R"(, "stage": )" + std::to_string(c.stage) + R"(}}},
    "script": [{"repeat": {"times": 4, "of": [{"backward": {}}, {"step": {}}]}}]})";
  auto scenario = read_scenario(text, ".");
  expects(scenario.ok(), "the benchmark's scenario is admitted");
  return std::move(scenario).value();
}

void all_stream_orders(benchmark::State& state) {
  const Case& c = cases[state.range(0)];
  const Scenario scenario = scenario_of(c, state.range(1) != 0);
  const auto timeline = make_timeline(scenario);
  search::StreamOrders orders;
  for (auto _ : state) orders = search::explore_streams(scenario, *timeline);
  state.SetLabel(std::string(orders.complete ? "complete" : orders.every_choice ? "every choice" : "part") + ", " + std::string(name_of(orders.agreement)) + ": " + c.name);
  const auto count = [&](const char* name, std::uint64_t value) { state.counters[name] = static_cast<double>(value); };
  count("states", orders.states);
  count("transitions", orders.transitions);
  count("rank_states", orders.rank_states);
  count("depth", orders.depth);
  count("outcomes", orders.outcomes);
  count("races", orders.races.size());
}
BENCHMARK(all_stream_orders)->ArgNames({"case", "wait_missing"})->ArgsProduct({{0, 1, 2, 3, 4}, {1, 0}})->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace gradledger
