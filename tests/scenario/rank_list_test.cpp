// Ranks of a group, with and without a list of them.
#include "sim/scenario/rank_list.h"

#include <gtest/gtest.h>

#include "sim/scenario/layout.h"
#include "tests/scenario/documents.h"

namespace gradledger {
namespace {

using Numbers = std::vector<std::uint32_t>;

TEST(rank_list, of_every_third_rank_says_what_a_list_of_them_says) {
  const RankList counted = RankList::every(2, 3, 4), listed(Numbers{2, 5, 8, 11});
  EXPECT_EQ(counted.listed(), (Numbers{2, 5, 8, 11}));
  EXPECT_EQ(counted, listed);
  for (const RankList& list : {counted, listed}) {
    EXPECT_EQ(list.size(), 4u);
    EXPECT_EQ(list.front(), 2u);
    EXPECT_EQ(list.back(), 11u);
    for (std::uint32_t rank = 0; rank < 16; ++rank) EXPECT_EQ(list.place_of(rank), rank % 3 == 2 && rank < 12 ? std::optional(rank / 3) : std::nullopt) << rank;
  }
}

TEST(rank_list, of_no_ranks_has_no_place_for_any) {
  EXPECT_EQ(RankList().size(), 0u);
  EXPECT_EQ(RankList().place_of(0), std::nullopt);
  EXPECT_EQ(RankList(), RankList(Numbers{}));
  EXPECT_NE(RankList(), RankList::every(0, 1, 1));
}

TEST(rank_list, groups_of_a_layout_divide_the_world) {
  testing::json document = testing::small_document_with("/world_size", 16);
  document["engine"]["pipeline_stages"] = 2;
  document["engine"]["expert_parallel_size"] = 4;
  document["parameters"] = {{{"name", "a"}, {"numel", 64}}, {{"name", "b"}, {"numel", 64}, {"pipeline_stage", 1}}};
  const auto scenario = testing::read(document);
  ASSERT_TRUE(scenario) << scenario.error().text();
  for (const auto group_of : {data_parallel_group, expert_data_parallel_group, expert_parallel_group, model_parallel_group}) {
    std::vector<std::uint32_t> met(16);
    for (std::uint32_t rank = 0; rank < 16; ++rank) {
      const ProcessGroup group = group_of(*scenario, rank);
      ASSERT_TRUE(group.ranks.place_of(rank).has_value());
      for (const std::uint32_t member : group.ranks) EXPECT_EQ(group_of(*scenario, member).ranks, group.ranks) << rank << " and " << member;
      met[rank] = group.id;
      EXPECT_EQ(process_groups(*scenario)[group.id], group.ranks.listed()) << rank;
    }
    EXPECT_GT(std::set<std::uint32_t>(met.begin(), met.end()).size(), 1u);
  }
}

}  // namespace
}  // namespace gradledger
