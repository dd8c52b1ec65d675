// Rows of a ledger and their names. A window of two micro-batches on two ranks; columns: (micro-batch 0, rank 0), (0, 1), (1, 0), (1, 1).
#include <gtest/gtest.h>

#include "ref/classify.h"

namespace gradledger::testing {
namespace {

using Weights = std::vector<double>;
using Names = std::vector<std::string>;

std::vector<ref::LedgerColumn> columns() {
  std::vector<ref::LedgerColumn> out;
  for (std::uint32_t micro_batch : {0u, 1u})
    for (std::uint32_t rank : {0u, 1u}) out.push_back({micro_batch, rank, Contribution{1, rank, micro_batch}, 1, 0.5, 0.25, {}});
  return out;
}

// Rank 0's row of the reduced gradient of step 1; full weight 1/2, averaged 1/4.
ref::RowContext reduced_row() {
  ref::RowContext context;
  context.average_divisor = 2;
  context.step = 1;
  context.world = 2;
  context.micro_batches = 2;
  context.reduced = true;
  context.boundary = {1};
  return context;
}

Names names(const Weights& observed, const ref::RowContext& context, const Weights& expected = {0.25, 0.25, 0.25, 0.25}, const std::vector<ref::LedgerColumn>& of = columns()) {
  Names out;
  for (const ref::Diagnosis& d : diagnose({{}, observed, expected, {}}, of, context)) out.emplace_back(name_of(d.finding));
  return out;
}

TEST(diagnosis, of_a_row_that_balances_is_none) { EXPECT_EQ(names({0.25, 0.25, 0.25, 0.25}, reduced_row()), Names{}); }

TEST(diagnosis, of_micro_batches_that_are_absent_is_a_discarded_gradient) {
  EXPECT_EQ(names({0, 0, 0.25, 0.25}, reduced_row()), Names{"discarded-gradient"});
  EXPECT_EQ(names({0, 0, 0, 0}, reduced_row()), Names{"discarded-gradient"});
}

TEST(diagnosis, with_a_host_accumulator_is_an_offload_loss) {
  ref::RowContext context = reduced_row();
  context.host_accumulator = true;
  EXPECT_EQ(names({0, 0, 0.25, 0.25}, context), Names{"offload-loss"});
}

TEST(diagnosis, of_a_private_micro_batch_is_a_boundary_leak) { EXPECT_EQ(names({0.25, 0.25, 0.5, 0}, reduced_row()), Names{"boundary-leak"}); }

TEST(diagnosis, of_a_window_private_as_a_whole_is_a_missing_reduction) { EXPECT_EQ(names({0.5, 0, 0.5, 0}, reduced_row()), Names{"missing-reduction"}); }

// Of rank 0 alone, or of its peer alone, the weights are told.
TEST(diagnosis, takes_a_micro_batch_for_private_only_where_its_own_weight_and_a_peers_are_told) {
  const auto names_with = [](const Weights& observed, const std::vector<bool>& open) {
    Names out;
    ref::LedgerRow row{{}, observed, {0.25, 0.25, 0.25, 0.25}, {}};
    row.open = open;
    for (const ref::Diagnosis& d : diagnose(row, columns(), reduced_row())) out.emplace_back(name_of(d.finding));
    return out;
  };
  EXPECT_EQ(names_with({0.5, 0, 0.5, 0}, {false, false, false, false}), Names{"missing-reduction"});
  EXPECT_EQ(names_with({0.5, 0.25, 0.25, 0.25}, {false, true, false, false}), Names{"duplicated-gradient"});
  EXPECT_EQ(names_with({0.25, 0, 0.25, 0.25}, {true, false, false, false}), Names{"discarded-gradient"});
}

// Both ranks have a part of one gradient: as it is before it is added up, where a sum is due and where an average is.
TEST(diagnosis, of_a_part_that_was_not_added_to_the_others_is_a_missing_reduction) {
  GradientShare share{{0, 0}, false, Rational(1)};
  ref::RowContext context = reduced_row();
  context.share = &share;
  EXPECT_EQ(names({0.25, 0, 0.25, 0}, context), Names{"missing-reduction"});
  EXPECT_EQ(names({0, 0.25, 0, 0.25}, context), Names{"discarded-gradient"}) << "the other rank's part";
  EXPECT_EQ(names({0.25, 0, 0, 0.25}, context), Names{"discarded-gradient"}) << "a micro-batch of each";
  EXPECT_EQ(names({0.125, 0, 0.125, 0}, context), (Names{"discarded-gradient", "wrong-scale"})) << "half of it";
  context.share = nullptr;
  EXPECT_EQ(names({0.25, 0, 0.25, 0}, context), Names{"discarded-gradient"}) << "nobody has a part";
}

TEST(diagnosis, of_a_lone_private_micro_batch_depends_on_whether_a_collective_ran) {
  ref::RowContext context = reduced_row();
  context.micro_batches = 1;
  const std::vector<ref::LedgerColumn> all = columns(), one{all[0], all[1]};
  EXPECT_EQ(names({0.5, 0}, context, {0.25, 0.25}, one), Names{"missing-reduction"}) << "it did not run at the boundary";
  context.boundary = {0};
  EXPECT_EQ(names({0.5, 0}, context, {0.25, 0.25}, one), Names{"boundary-leak"});
  context.reduced = false;
  EXPECT_EQ(names({0.5, 0}, context, {0.25, 0.25}, one), Names{"missing-reduction"});
}

TEST(diagnosis, of_one_common_factor_is_a_wrong_scale) {
  EXPECT_EQ(names({0.5, 0.5, 0.5, 0.5}, reduced_row()), Names{"wrong-scale"});
  EXPECT_EQ(names({0.125, 0.125, 0.125, 0.125}, reduced_row()), Names{"wrong-scale"});
  EXPECT_EQ(names({-0.25, -0.25, -0.25, -0.25}, reduced_row()), Names{"wrong-scale"});
}

TEST(diagnosis, of_a_multiple_is_a_duplicated_gradient) {
  EXPECT_EQ(names({0.5, 0.5, 0.25, 0.25}, reduced_row()), Names{"duplicated-gradient"});
  EXPECT_EQ(names({0.25, 0.25, 0.75, 0.75}, reduced_row()), Names{"duplicated-gradient"});
}

TEST(diagnosis, of_an_earlier_windows_contribution_is_a_stale_gradient) {
  std::vector<ref::LedgerColumn> with_earlier = columns();
  with_earlier.push_back({0, 0, Contribution{0, 0, 0}, {}});
  EXPECT_EQ(names({0.25, 0.25, 0.25, 0.25, 0.25}, reduced_row(), {0.25, 0.25, 0.25, 0.25, 0}, with_earlier), Names{"stale-gradient"});
  EXPECT_EQ(names({0, 0, 0.25, 0.25, 0.25}, reduced_row(), {0.25, 0.25, 0.25, 0.25, 0}, with_earlier), (Names{"stale-gradient", "discarded-gradient"}));
}

TEST(diagnosis, of_a_ratio_of_two_probes_is_a_misplaced_shard) {
  const double elsewhere = 0.25 * ref::SingleSource::probe_max / ref::SingleSource::probe_min;
  EXPECT_EQ(names({elsewhere, elsewhere, elsewhere, elsewhere}, reduced_row()), Names{"misplaced-shard"});
  EXPECT_EQ(names({0.25, elsewhere, 0.25, 0.25}, reduced_row()), Names{"misplaced-shard"});
}

// By three, where every divisor is a power of two: the factor of one element could be that of two probes, that of all elements is not.
TEST(diagnosis, of_one_factor_in_several_elements_is_a_wrong_scale_whatever_it_is) {
  const Weights due{0.25, 0.25, 0.25, 0.25}, off{0.25 / 3, 0.25 / 3, 0.25 / 3, 0.25 / 3}, other{0.05, 0.05, 0.05, 0.05};
  const auto one_factor = [&](const std::vector<Weights>& observed, std::uint32_t elements) {
    std::vector<ref::LedgerRow> rows;
    for (const Weights& w : observed) rows.push_back({{{0, 0, elements}}, w, due, {}});
    return ref::off_by_one_factor(rows, columns(), 1);
  };
  EXPECT_TRUE(one_factor({off}, 2));
  EXPECT_TRUE(one_factor({off, off}, 1));
  EXPECT_FALSE(one_factor({off}, 1)) << "one element cannot tell";
  EXPECT_FALSE(one_factor({off, other}, 2)) << "each element has its own";
  EXPECT_FALSE(one_factor({due}, 2));
  ref::RowContext context = reduced_row();
  EXPECT_EQ(names(other, context), Names{"misplaced-shard"});
  context.one_factor = true;
  EXPECT_EQ(names(other, context), Names{"wrong-scale"});
}

TEST(diagnosis, in_a_local_accumulator_takes_a_peers_contribution_for_a_duplicate) {
  ref::RowContext context = reduced_row();
  context.local = true;
  EXPECT_EQ(names({0.5, 0.5, 0.5, 0}, context, {0.5, 0, 0.5, 0}), Names{"duplicated-gradient"});
}

TEST(diagnosis, of_what_fits_nothing_else_is_a_wrong_scale_of_just_those) {
  const auto out = diagnose({{}, {0.25, 0.125, 0.25, 0.25}, {0.25, 0.25, 0.25, 0.25}, {}}, columns(), reduced_row());
  ASSERT_EQ(out.size(), 1u);
  EXPECT_EQ(name_of(out[0].finding), "wrong-scale");
  ASSERT_EQ(out[0].contributions.size(), 1u);
  EXPECT_EQ(out[0].contributions[0].contribution, (Contribution{1, 1, 0}));
  EXPECT_EQ(out[0].contributions[0].observed, 0.125);
}

}  // namespace
}  // namespace gradledger::testing
