#include <gtest/gtest.h>

#include "ref/describe.h"
#include "tests/support/scenarios.h"

namespace gradledger::testing {
namespace {

ref::Miscounted missing(std::uint32_t step, std::uint32_t rank, std::uint32_t micro_batch) { return {{step, rank, micro_batch}, 0.25, 0}; }

TEST(words, for_weights_are_fractions_where_they_are_fractions) {
  EXPECT_EQ(ref::weight_text(0), "0");
  EXPECT_EQ(ref::weight_text(1), "1");
  EXPECT_EQ(ref::weight_text(0.375), "3/8");
  EXPECT_EQ(ref::weight_text(1.0 / 3), "1/3");
  EXPECT_EQ(ref::weight_text(-0.5), "-1/2");
  EXPECT_EQ(ref::weight_text(1.0 / 2048), "1/2048");
  EXPECT_EQ(ref::weight_text(1 - 1.0 / 3), "2/3");
  EXPECT_EQ(ref::weight_text(0.2 * 4), "4/5");
  EXPECT_EQ(ref::weight_text(1.0 / 7 / 2), "1/14");
  EXPECT_EQ(ref::weight_text(std::sqrt(2.0) / 17), "0.083189");
  EXPECT_EQ(ref::weight_text(std::ldexp(1.0, -20)), "2^-20");
  EXPECT_EQ(ref::weight_text(std::ldexp(1.0, 16)), "65536");
}

TEST(words, for_numbers_join_neighbours) {
  EXPECT_EQ(ref::numbers_text({}), "");
  EXPECT_EQ(ref::numbers_text({3}), "3");
  EXPECT_EQ(ref::numbers_text({5, 0, 2, 1, 1}), "0-2, 5");
}

TEST(words, for_one_and_for_several_agree_with_their_number) {
  EXPECT_EQ(ref::numbered("rank", {3, 3}), "rank 3");
  EXPECT_EQ(ref::numbered("rank", {0, 1}), "ranks 0-1");
  EXPECT_EQ(ref::numbered("micro-batch", {0, 2}), "micro-batches 0, 2");
}

TEST(words, for_contributions_name_other_steps_and_share_ranks) {
  EXPECT_EQ(ref::contributions_text({missing(1, 0, 0), missing(1, 1, 0), missing(1, 0, 1), missing(1, 1, 1)}, 1), "micro-batches 0-1 of ranks 0-1");
  EXPECT_EQ(ref::contributions_text({missing(0, 1, 2)}, 1), "micro-batch 2 of rank 1 from step 0");
}

TEST(words, for_elements_name_parameters) {
  const Scenario s = base_scenario(1, {30, 21}, Dtype::float32);
  EXPECT_EQ(ref::elements_text(s, {{0, 0, 30}, {1, 0, 2}}), "w0[0:30], w1[0:2]");
}

}  // namespace
}  // namespace gradledger::testing
