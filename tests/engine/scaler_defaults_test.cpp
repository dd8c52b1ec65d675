// Where a dynamic loss scale begins, release by release, and whether a key of it is given.
#include <string_view>

#include <gtest/gtest.h>

#include "sim/frameworks/deepspeed/settings.h"
#include "tests/engine/releases.h"

namespace gradledger::testing {
namespace {

// What the first step reports: the scale that it was taken with, or half of it behind an overflow.
double scale_behind_a_step(const char* as_of, std::uint32_t stage, const Fp16Config& fp16, bool overflows) {
  Scenario s = of_stage(stage, Dtype::float16, as_of, {8});
  deepspeed_config(s).fp16 = fp16;
  s.script = {backward(), step()};
  if (overflows) s.script.insert(s.script.begin(), overflow(0, 0));
  const Keeper seen = run(s);
  for (const auto& [key, value] : seen.facts)
    if (std::get<2>(key) == StepFact::loss_scale) return value;
  return 0;
}

TEST(scaler_defaults, are_those_of_its_class_before_0_17_1_where_zero_is_given_no_key) {
  constexpr double of_the_class = 4294967296.0, documented = 65536.0;
  const Fp16Config alone{.enabled = true}, given{.enabled = true, .states_defaults = true};
  for (const std::uint32_t stage : {1u, 2u, 3u}) {
    EXPECT_EQ(scale_behind_a_step("0.17.0", stage, alone, true), of_the_class / 2) << stage << ": no hysteresis either";
    EXPECT_EQ(scale_behind_a_step("0.17.0", stage, given, true), documented) << stage;
    EXPECT_EQ(scale_behind_a_step("0.17.1", stage, alone, true), documented) << stage;
  }
  EXPECT_EQ(scale_behind_a_step("0.17.0", 0, alone, true), documented / 2);
  for (const char* as_of : {"0.17.0", "0.17.1"}) {
    Scenario s = of_stage(2, Dtype::float16, as_of, {8});
    deepspeed_config(s).fp16 = alone;
    s.script = {backward(), step()};
    EXPECT_EQ(make_timeline(s)->contract.loss_scale.initial, std::string_view(as_of) == "0.17.0" ? of_the_class : documented) << as_of;
  }
}

}  // namespace
}  // namespace gradledger::testing
