// Weights from sums: what values tell, what they leave open, and where no weights fit.
#include <gtest/gtest.h>

#include "ref/decode.h"

namespace gradledger::ref {
namespace {

constexpr double share = 0.25;

Candidate due_here() { return {share, 2 * share, share, true, 0}; }
Candidate of_an_earlier_window(double seen_before = 0) { return {0, 2 * share, share, false, seen_before}; }

TEST(decoding, finds_each_weight_by_the_element_that_its_gradient_is_alone_in) {
  Decoder decoder({due_here(), due_here()}, 0, 0);
  decoder.add({3, 0}, 3 * share, 0);
  decoder.add({0, 5}, 0, 0);
  decoder.add({1, 7}, share, 0);
  const auto weights = decoder.weights();
  ASSERT_TRUE(weights);
  EXPECT_EQ((*weights)[0].value, share);
  EXPECT_EQ((*weights)[1].value, 0);
  EXPECT_FALSE((*weights)[0].open || (*weights)[1].open);
}

TEST(decoding, goes_on_with_what_it_knows) {
  Decoder decoder({due_here(), due_here(), due_here()}, 0, 0);
  decoder.add({2, 4, 8}, 2 * share + 4 * 2 * share + 8 * share, 0);
  decoder.add({2, 0, 0}, 2 * share, 0);
  decoder.add({1, 1, 0}, share + 2 * share, 0);
  const auto weights = decoder.weights();
  ASSERT_TRUE(weights);
  EXPECT_EQ((*weights)[1].value, 2 * share);
  EXPECT_EQ((*weights)[2].value, share);
}

TEST(decoding, leaves_open_what_no_element_tells_apart) {
  Decoder decoder({due_here(), due_here(), due_here()}, 0, 0);
  decoder.add({2, 4, 0}, 0, 0);
  decoder.add({1, 2, 0}, 0, 0);
  const auto weights = decoder.weights();
  ASSERT_TRUE(weights);
  for (const Weight& weight : *weights) EXPECT_TRUE(weight.open && weight.value == share);
}

TEST(decoding, leaves_open_a_weight_that_rounding_hides) {
  Decoder decoder({due_here()}, 0, 0);
  decoder.add({1}, share, share / 2);
  EXPECT_TRUE((*decoder.weights())[0].open);
}

TEST(decoding, takes_what_lies_within_rounding_for_what_is_due) {
  constexpr double rounding = 1.0 / 64;
  Decoder decoder({due_here()}, rounding, 0);
  decoder.add({1}, share * (1 + rounding / 2), 0);
  EXPECT_EQ((*decoder.weights())[0].value, share);
  Decoder beyond({due_here()}, rounding, 0);
  beyond.add({1}, share * (1 + 4 * rounding), 0);
  EXPECT_NE((*beyond.weights())[0].value, share);
}

TEST(decoding, has_no_weights_for_an_element_that_none_explain) {
  Decoder decoder({due_here()}, 0, 0);
  decoder.add({1}, share, 0);
  decoder.add({2}, 3 * share, 0);
  EXPECT_FALSE(decoder.weights());
}

TEST(decoding, of_equal_data_tells_their_sum_and_says_whose_it_may_be) {
  Decoder decoder({of_an_earlier_window(), due_here()}, 0, 0);
  decoder.add({1, 1}, 2 * share, 0);
  const auto weights = decoder.weights();
  ASSERT_TRUE(weights);
  EXPECT_EQ((*weights)[0].value, 0);
  EXPECT_EQ((*weights)[1].value, 2 * share);
  EXPECT_EQ((*weights)[1].alike, std::vector<std::size_t>{0});
}

TEST(decoding, of_equal_data_goes_by_what_was_told_apart_before) {
  Decoder decoder({of_an_earlier_window(share), due_here()}, 0, 0);
  decoder.add({1, 1}, 2 * share, 0);
  const auto weights = decoder.weights();
  ASSERT_TRUE(weights);
  EXPECT_EQ((*weights)[0].value, share);
  EXPECT_EQ((*weights)[1].value, share);
  EXPECT_TRUE((*weights)[1].alike.empty());
}

TEST(decoding, of_equal_data_that_are_all_missing_says_that_all_are) {
  Decoder decoder({of_an_earlier_window(), due_here()}, 0, 0);
  decoder.add({1, 1}, 0, 0);
  const auto weights = decoder.weights();
  ASSERT_TRUE(weights);
  EXPECT_EQ((*weights)[1].value, 0);
  EXPECT_FALSE((*weights)[1].open);
}

}  // namespace
}  // namespace gradledger::ref
