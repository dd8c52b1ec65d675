// Megatron-Core: where parameters lie, which ranks meet, what a release does, and how its configuration is read.
#include <gtest/gtest.h>

#include "sim/frameworks/megatron/behaviour.h"
#include "sim/frameworks/megatron/buffer_layout.h"
#include "sim/frameworks/megatron/config_json.h"
#include "sim/frameworks/megatron/grad_scaler.h"
#include "sim/frameworks/megatron/parallel_groups.h"

namespace gradledger::megatron {
namespace {

using nlohmann::json;
using Ranks = std::vector<std::uint32_t>;

TEST(megatron_layout, reverses_parameters_and_pads_them_for_the_distributed_optimizer) {
  const std::vector<LaidParameter> abc{{0, 30, false}, {1, 21, false}, {2, 13, false}};
  const BufferLayout plain = buffer_layout(abc, {});
  EXPECT_EQ(plain.numel, 64u);
  EXPECT_EQ(plain.parameters[0].parameter, 2u);
  EXPECT_EQ(plain.parameters[2].begin, 34u);
  const BufferLayout padded = buffer_layout(abc, {.distributed_optimizer = true, .ranks = 2, .bucket_size = 20});
  EXPECT_EQ(padded.numel, 256u);
  ASSERT_EQ(padded.buckets.size(), 2u);
  EXPECT_EQ(padded.buckets[1].begin, 128u);
  EXPECT_EQ(padded.numel_unpadded, 115u);
  EXPECT_EQ(padded.parameters[1].begin, 64u);
}

TEST(megatron_layout, gives_a_rank_its_part_of_every_bucket) {
  const BufferLayout layout = buffer_layout({{0, 30, false}, {1, 21, false}, {2, 13, false}}, {.distributed_optimizer = true, .ranks = 2, .bucket_size = 20});
  const auto first = shard_of(layout, 2, 0), second = shard_of(layout, 2, 1);
  ASSERT_EQ(first.size(), 2u);
  EXPECT_EQ(first[0].parameter, 2u);
  EXPECT_EQ(first[1].parameter, 0u);
  ASSERT_EQ(second.size(), 1u);
  EXPECT_EQ(second[0].parameter, 1u);
}

TEST(megatron_layout, gives_a_shared_embedding_a_bucket_that_was_empty_until_0_13) {
  const std::vector<LaidParameter> tied{{0, 30, true}, {1, 21, false}};
  const BufferLayout head = buffer_layout(tied, {.distributed_optimizer = true, .ranks = 1});
  EXPECT_EQ(head.parameters[1].begin, 128u);
  const BufferLayout early = buffer_layout(tied, {.distributed_optimizer = true, .ranks = 1, .keeps_bucket_start = true});
  EXPECT_EQ(early.parameters[1].begin, 64u);
  EXPECT_EQ(early.buckets[1].begin, early.buckets[1].end);
}

Scenario of_ranks(std::uint32_t world, std::map<std::string, std::vector<Ranks>> groups) {
  Scenario s;
  s.world_size = world;
  s.parameters.push_back({"a", 4, std::nullopt});
  s.groups = std::move(groups);
  return s;
}

TEST(megatron_groups, follow_from_those_that_are_stated) {
  const Scenario s = of_ranks(4, {{"cp", {{0, 1}, {2, 3}}}, {"dp", {{0, 2}, {1, 3}}}});
  const ParallelGroups g = parallel_groups(s, 1, 1);
  EXPECT_EQ(g.context.ranks, (Ranks{0, 1}));
  EXPECT_EQ(g.data.ranks, (Ranks{1, 3}));
  EXPECT_EQ(g.data_context.ranks, (Ranks{0, 1, 2, 3}));
  EXPECT_EQ(g.data_context.id, 0u);
  EXPECT_EQ(g.tensor.id, ParallelGroups::no_group);
  EXPECT_FALSE(parallel_problem(s, 1));
}

TEST(megatron_groups, that_meet_and_have_no_name_are_asked_for) {
  const auto problem = parallel_problem(of_ranks(4, {{"tp", {{0, 1}, {2, 3}}}}), 1);
  ASSERT_TRUE(problem);
  EXPECT_EQ(problem->where, "/groups");
  EXPECT_NE(problem->message.find("ranks 0, 2"), std::string::npos) << problem->message;
}

TEST(megatron_behaviour, is_that_of_the_release) {
  const auto at = [](const char* release) { return behaviour_of({release, {}}).value(); };
  EXPECT_FALSE(at("0.15.3").counts_ready);
  EXPECT_TRUE(at("0.16.0").counts_ready);
  EXPECT_TRUE(at("core_v0.12.0").sum_times_context);
  EXPECT_FALSE(at("0.13.0").sum_times_context);
  EXPECT_EQ(at("head"), at("0.19.0"));
  EXPECT_FALSE(behaviour_of({"0.18.2", {{"remembers_finish", "no"}}})->remembers_finish);
}

TEST(megatron_behaviour, that_is_not_known_is_named) {
  EXPECT_EQ(behaviour_of({"0.7.0", {}}).error().where, "/engine/as_of");
  EXPECT_EQ(behaviour_of({"late", {}}).error().where, "/engine/as_of");
  EXPECT_EQ(behaviour_of({"head", {{"counts", "yes"}}}).error().where, "/engine/as_of/counts");
  EXPECT_EQ(behaviour_of({"head", {{"counts_ready", "maybe"}}}).error().where, "/engine/as_of/counts_ready");
}

TEST(megatron_config, reads_what_it_writes) {
  const json all = json::parse(R"({"ddp": {"grad_reduce_in_fp32": true, "overlap_grad_reduce": true, "use_distributed_optimizer": true, "num_distributed_optimizer_instances": 2,
      "bucket_size": 20}, "optimizer_config": {"clip_grad": 0.5, "loss_scale": 8.0, "hysteresis": 3}, "model": {"calculate_per_token_loss": true},
      "parameters": {"a": ["shared_embedding", "shared"]}, "schedule": {"num_microbatches": 4, "loss": "sum_and_tokens"}})");
  const auto config = megatron_config_from_json(all, "/engine/config");
  ASSERT_TRUE(config) << config.error().text();
  EXPECT_EQ(json::parse(megatron_config_to_json(*config).dump()), all);
  EXPECT_EQ(*megatron_config_from_json(megatron_config_to_json(MegatronConfig{}), ""), MegatronConfig{});
}

TEST(megatron_config, names_the_place_of_what_is_wrong) {
  const auto place = [](const char* text) {
    const auto config = megatron_config_from_json(json::parse(text), "/engine/config");
    return config ? std::string("nothing") : config.error().where;
  };
  EXPECT_EQ(place(R"({"ddp": {"bucket_cap_mb": 25}})"), "/engine/config/ddp/bucket_cap_mb");
  EXPECT_EQ(place(R"({"optimizer_config": {"loss_scale": 3}})"), "/engine/config/optimizer_config/loss_scale");
  EXPECT_EQ(place(R"({"schedule": {}})"), "/engine/config/schedule");
}

TEST(megatron_scaler, gives_tolerance_back_where_it_grows_alone) {
  OptimizerOptions options;
  options.initial_loss_scale = 8;
  options.hysteresis = 2;
  options.loss_scale_window = 2;
  GradScaler scaler(options, Dtype::float16);
  std::vector<double> scales;
  for (const bool overflow : {true, true, false, true, false, false, true}) {
    scaler.update(overflow);
    scales.push_back(scaler.scale());
  }
  EXPECT_EQ(scales, (std::vector<double>{8, 4, 4, 2, 2, 4, 4}));
}

}  // namespace
}  // namespace gradledger::megatron
