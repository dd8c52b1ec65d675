// What ZeRO stage 3 gathers around its modules: held to what DeepSpeed 0.19.8 gathers in the same forwards and backwards of two small modules.
#include "sim/frameworks/deepspeed/engine/weight_fetches.h"

#include <gtest/gtest.h>

#include "tests/support/loops.h"
#include "tests/support/scenarios.h"

namespace gradledger {
namespace {

using Gathered = std::vector<std::uint32_t>;

Gathered forward_of_both(WeightFetches& fetches) {
  fetches.begin_forward();
  Gathered out = fetches.forward_of_root();
  for (const std::uint32_t module : {0u, 1u})
    for (const std::uint32_t p : fetches.forward(module)) out.push_back(p);
  return out;
}

Gathered backward_of_both(WeightFetches& fetches) {
  Gathered out = fetches.backward_of_root();
  for (const std::uint32_t module : {1u, 0u}) {
    for (const std::uint32_t p : fetches.before_backward(module)) out.push_back(p);
    fetches.after_backward(module);
  }
  return out;
}

TEST(weight_fetches, a_graph_that_is_run_twice_gathers_nothing_the_second_time) {
  WeightFetches fetches({0, 1}, {6, 4});
  EXPECT_EQ(forward_of_both(fetches), (Gathered{0, 1}));
  EXPECT_EQ(backward_of_both(fetches), (Gathered{1, 0}));
  EXPECT_EQ(backward_of_both(fetches), Gathered{});
}

TEST(weight_fetches, of_two_forwards_the_second_backward_keeps_what_it_gathers) {
  WeightFetches fetches({0, 1}, {6, 4});
  EXPECT_EQ(forward_of_both(fetches), (Gathered{0, 1}));
  EXPECT_EQ(forward_of_both(fetches).size(), 2u);
  EXPECT_EQ(backward_of_both(fetches), Gathered{});
  EXPECT_EQ(backward_of_both(fetches), (Gathered{1, 0}));
  EXPECT_EQ(forward_of_both(fetches), Gathered{});
}

// Two windows in which ranks run their backwards in events of their own. The first of them are recorded.
std::set<std::string> found_in_turn(const char* module_of_the_second) {
  nlohmann::json document = testing::loop_around("deepspeed", R"([{"backward": {"ranks": [0]}}, {"backward": {"ranks": [1]}}, {"step": {}},
                                                                 {"backward": {"ranks": [0]}}, {"backward": {"ranks": [1]}}, {"step": {}}])",
                                                 R"({"zero_optimization": {"stage": 3}})");
  document["engine"]["as_of"] = "0.19.8";
  document["parameters"][1]["numel"] = 13;  // buckets of the same size
  document["script"][0]["backward"]["uses"] = nlohmann::json::array({"w0"});
  document["script"][1]["backward"]["uses"] = nlohmann::json::array({module_of_the_second});
  const auto scenario = read_scenario(document.dump(), ".");
  EXPECT_TRUE(scenario) << (scenario ? "" : scenario.error().text());
  return testing::classes(testing::judge(*scenario));
}

TEST(weight_fetches, of_ranks_that_ran_the_same_modules_in_events_of_their_own_agree) {
  EXPECT_FALSE(found_in_turn("w0").contains("engine-error"));
  EXPECT_TRUE(found_in_turn("w1").contains("engine-error")) << "it ran another module";
}

// The first rank steps alone. Ranks of the other part of the model wait where they compare what they recorded, and reduce nothing.
TEST(weight_fetches, of_tensor_parallel_ranks_are_compared_over_the_world) {
  nlohmann::json document = testing::loop_around("deepspeed", R"([{"backward": {}}, {"step": {}}, {"step": {"ranks": [0]}}, {"backward": {}}, {"step": {}}])",
                                                 R"({"zero_optimization": {"stage": 3}, "fp16": {"enabled": true}})");
  document["world_size"] = 4;
  document["layout"] = {{"tp", 2}};
  document.erase("model_dtype");
  const auto scenario = read_scenario(document.dump(), ".");
  ASSERT_TRUE(scenario) << (scenario ? "" : scenario.error().text());
  EXPECT_EQ(testing::classes(testing::judge(*scenario)), std::set<std::string>{"deadlock"});
}

}  // namespace
}  // namespace gradledger
