#include "sim/frameworks/deepspeed/engine/partition.h"

#include <gtest/gtest.h>

#include <numeric>
#include <set>
#include <string>

#include <fmt/format.h>

#include "tests/support/scenarios.h"

namespace gradledger::testing {
namespace {

// Every element of every parameter, and who owns it, from the definition: element offset / partition size.
void expect_partition(const std::vector<std::uint32_t>& sizes, std::uint32_t world, Dealing dealing) {
  const Scenario scenario = base_scenario(world, sizes, Dtype::float32);
  const FlatPartition layout(scenario, optimizer_groups(scenario, 0).front().parameters, world, dealing);
  EXPECT_EQ(layout.padded() % (2 * world), 0u);
  EXPECT_GE(layout.padded(), layout.numel());
  EXPECT_LT(layout.padded() - layout.numel(), 2 * world);
  std::vector<int> owners(layout.padded(), 0);
  for (std::uint32_t rank = 0; rank < world; ++rank) {
    for (const OwnedPart& part : layout.parts(rank)) {
      for (std::uint32_t i = 0; i < part.numel; ++i) {
        const std::uint64_t flat = layout.offset(part.parameter) + part.parameter_offset + i;
        EXPECT_EQ(flat / layout.partition(), rank);
        EXPECT_EQ(flat % layout.partition(), part.partition_offset + i);
        ++owners[flat];
      }
    }
  }
  for (std::uint32_t i = 0; i < layout.numel(); ++i) EXPECT_EQ(owners[i], 1) << "element " << i;
  for (std::uint64_t i = layout.numel(); i < layout.padded(); ++i) EXPECT_EQ(owners[i], 0);
}

TEST(flat_partition, gives_every_element_to_exactly_one_rank) {
  for (std::uint32_t world : {1u, 2u, 3u, 4u, 7u, 8u})
    for (const std::vector<std::uint32_t>& sizes : std::vector<std::vector<std::uint32_t>>{{1}, {30, 21, 13}, {40, 41, 17}, {1, 1, 1}, {5, 0, 9}, {100}, {29, 14, 15}})
      for (const Dealing dealing : {Dealing::in_order, Dealing::in_turn, Dealing::in_turn_without_empty}) expect_partition(sizes, world, dealing);
}

// As a rank cuts a bucket that is reduced at once: itself apart, all others before and behind it together.
TEST(flat_partition, owners_that_are_taken_together_own_what_they_own_one_by_one) {
  for (const std::uint32_t world : {1u, 2u, 3u, 8u})
    for (const std::vector<std::uint32_t>& sizes : std::vector<std::vector<std::uint32_t>>{{30, 21, 13}, {5, 0, 9}, {100}, {1, 1, 1}}) {
      std::vector<std::uint32_t> members(sizes.size());
      std::iota(members.begin(), members.end(), 0u);
      const FlatPartition layout(base_scenario(world, sizes, Dtype::float32), members, world, Dealing::in_order);
      for (std::uint32_t me = 0; me < world; ++me)
        for (std::uint32_t p = 0; p < sizes.size(); ++p) {
          std::uint64_t together = 0;
          std::uint32_t stretches = 0;
          for (std::uint32_t owner = layout.first_owner(p), last = owner; owner < world; owner = last + 1, ++stretches) {
            last = layout.last_owner_before(me, owner, p);
            ASSERT_GE(last, owner);
            if (owner <= me && me <= last) EXPECT_EQ(owner, last) << "the rank's own are apart";
            std::uint64_t one_by_one = 0;
            for (std::uint32_t r = owner; r <= last; ++r) one_by_one += layout.owned(r, p).numel;
            EXPECT_EQ(layout.owned_by(owner, last, p), one_by_one);
            together += one_by_one;
            if (together == sizes[p]) break;
          }
          EXPECT_EQ(together, sizes[p]);
          EXPECT_LE(stretches, 2u) << "before the rank, the rank, behind it";
        }
    }
}

TEST(flat_partition, round_robin_deals_parameters_out_by_index) {
  const FlatPartition layout(base_scenario(2, {3, 4, 5, 6}, Dtype::float32), {0, 1, 2, 3}, 2, Dealing::in_turn);
  EXPECT_EQ(layout.order(), (std::vector<std::uint32_t>{0, 2, 1, 3}));
  EXPECT_EQ(layout.offset(1), 8u);
}

TEST(flat_partition, round_robin_may_pass_over_what_is_empty) {
  const Scenario scenario = base_scenario(2, {2, 0, 3, 2}, Dtype::float32);
  EXPECT_EQ(FlatPartition(scenario, {0, 1, 2, 3}, 2, Dealing::in_turn).order(), (std::vector<std::uint32_t>{0, 2, 1, 3}));
  EXPECT_EQ(FlatPartition(scenario, {0, 1, 2, 3}, 2, Dealing::in_turn_without_empty).order(), (std::vector<std::uint32_t>{0, 3, 2, 1}));
}

TEST(flat_partition, holds_the_members_of_its_group_in_their_order_there) {
  const FlatPartition layout(base_scenario(3, {3, 4, 5, 6}, Dtype::float32), {3, 1}, 3, Dealing::in_order);
  EXPECT_EQ(layout.numel(), 10u);
  EXPECT_EQ(layout.padded(), 12u);
  EXPECT_EQ(layout.offset(1), 6u);
  EXPECT_FALSE(layout.contains(0));
}

// Four ranks, experts over two each, two groups with experts in both: the experts of each come behind, divided by the ranks that have them.
TEST(optimizer_groups, split_experts_off_into_groups_of_their_own) {
  Scenario s = base_scenario(4, {8, 6, 6, 5, 3, 3}, Dtype::float32);
  s.engine.expert_parallel_size = 2;
  for (std::uint32_t p : {1u, 2u, 4u, 5u}) s.parameters[p].expert = p % 2;
  s.engine.param_groups = {{{0, 1, 2}, std::nullopt, 0.25}, {{4, 5, 3}, 0.5, std::nullopt}};
  for (std::uint32_t rank = 0; rank < 4; ++rank) {
    const std::vector<RankGroup> groups = optimizer_groups(s, rank);
    ASSERT_EQ(groups.size(), 4u);
    const bool odd = rank % 2 == 1;
    EXPECT_EQ(groups[0].parameters, (std::vector<std::uint32_t>{0}));
    EXPECT_EQ(groups[1].parameters, (std::vector<std::uint32_t>{3}));
    EXPECT_EQ(groups[2].parameters, (std::vector<std::uint32_t>{odd ? 1u : 2u}));
    EXPECT_EQ(groups[3].parameters, (std::vector<std::uint32_t>{odd ? 5u : 4u}));
    EXPECT_EQ(groups[0].peers.size(), 4u);
    EXPECT_EQ(groups[2].peers.ranks.listed(), (std::vector<std::uint32_t>{rank % 2, rank % 2 + 2}));
    EXPECT_EQ(groups[2].optimizer.weight_decay, 0.25);
    EXPECT_EQ(groups[3].optimizer.learning_rate, 0.5);
    EXPECT_EQ(groups[3].optimizer.weight_decay, s.engine.optimizer.weight_decay);
    EXPECT_EQ(expert_parallel_group(s, rank).ranks.listed(), (std::vector<std::uint32_t>{rank / 2 * 2, rank / 2 * 2 + 1}));
  }
}

TEST(optimizer_groups, that_hold_nothing_on_a_rank_are_left_out) {
  Scenario s = base_scenario(2, {8, 6}, Dtype::float32);
  s.parameters[1].trainable = false;
  s.engine.param_groups = {{{1}, {}, {}}, {{0}, {}, {}}};
  ASSERT_EQ(optimizer_groups(s, 0).size(), 1u);
  EXPECT_EQ(optimizer_groups(s, 0)[0].parameters, (std::vector<std::uint32_t>{0}));
}

TEST(parameter_shards, cover_a_parameter_and_leave_late_ranks_without_data) {
  for (std::uint32_t world : {1u, 2u, 3u, 5u, 8u}) {
    for (std::uint64_t numel : {0u, 1u, 2u, 7u, 8u, 9u, 64u}) {
      std::uint64_t covered = 0;
      for (std::uint32_t rank = 0; rank < world; ++rank) {
        const ParameterShard shard = shard_of(numel, world, rank);
        EXPECT_EQ(shard.size, (numel + world - 1) / world);
        EXPECT_EQ(shard.offset, covered);
        EXPECT_LE(shard.real, shard.size);
        covered += shard.real;
      }
      EXPECT_EQ(covered, numel);
    }
  }
}

// Of five elements none lies with ranks 2 and 3, which ask for no gradient: they go on to the norm, where they wait for the others.
TEST(a_rank_that_owns_nothing, misses_no_gradient_at_a_step_without_a_backward) {
  Scenario s = base_scenario(4, {3, 2}, Dtype::float32);
  s.engine.as_of.base = "0.19.8";
  s.engine.param_groups = {{{0}, {}, {}}, {{1}, {}, {}}};
  deepspeed_config(s).zero.stage = 2;
  deepspeed_config(s).managed_gradient_accumulation = false;
  s.script = {step(), backward(), step()};
  const ref::Verdict verdict = judge(s);
  EXPECT_EQ(classes(verdict), (std::set<std::string>{"deadlock", "engine-error"})) << sentences(verdict);
  std::vector<std::uint32_t> raised;
  for (const ref::Finding& f : verdict.findings)
    if (f.finding == ref::FindingClass::engine_error) raised.push_back(f.rank);
  EXPECT_EQ(raised, (std::vector<std::uint32_t>{0, 1})) << sentences(verdict);
}

// Five elements on four ranks: the shard of rank 2 goes over the end, and that of rank 3 begins behind it, which Tensor.narrow() tells otherwise.
TEST(safe_set_full_grad_at_stage_3, raises_as_narrow_does_where_a_shard_has_padding) {
  Scenario s = base_scenario(4, {8, 5}, Dtype::float32);
  s.engine.as_of.base = "0.19.8";
  deepspeed_config(s).zero.stage = 3;
  s.script = {backward(), set_of("w1", 2)};
  std::set<std::string> raised;
  for (const EngineErrorRecord& error : judge(s).facts.engine_errors) raised.insert(fmt::format("rank {}: {}: {}", error.rank, error.type, error.message));
  EXPECT_EQ(raised, (std::set<std::string>{"rank 2: RuntimeError: start (4) + length (2) exceeds dimension size (5)",
                                           "rank 3: IndexError: start out of range (expected to be in range of [-5, 5], but got 6)"}));
}

}  // namespace
}  // namespace gradledger::testing
