// What ZeRO stage 3 gathers around its modules: held to what DeepSpeed 0.19.8 gathers in the same forwards and backwards of two small modules.
#include "sim/frameworks/deepspeed/engine/weight_fetches.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace gradledger
