// Megatron-Core: where parameters lie, which ranks meet, what a release does, and how its configuration is read.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "ref/probes.h"
#include "sim/execution/host_executor.h"
#include "sim/frameworks/framework.h"
#include "sim/frameworks/megatron/admission.h"
#include "sim/frameworks/megatron/behaviour.h"
#include "sim/frameworks/megatron/buffer_layout.h"
#include "sim/frameworks/megatron/config_json.h"
#include "sim/frameworks/megatron/contract.h"
#include "sim/frameworks/megatron/engine_setup.h"
#include "sim/frameworks/megatron/events.h"
#include "sim/frameworks/megatron/grad_scaler.h"
#include "sim/frameworks/megatron/megatron_engine.h"
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

TEST(megatron_layout, is_counted_in_more_than_32_bits) {
  const std::vector<LaidParameter> large{{0, 1u << 31, false}, {1, (1u << 31) - 1, false}};
  EXPECT_EQ(buffer_numel(large, {}), (1ull << 32) - 1);
  EXPECT_EQ(buffer_numel(large, {.distributed_optimizer = true, .ranks = 2, .bucket_size = 20}), 1ull << 32);
  // Buckets of 127 ranks are padded to multiples of 127 times 128.
  EXPECT_EQ(buffer_numel({{0, 1, false}, {1, 1, false}}, {.distributed_optimizer = true, .ranks = 127, .bucket_size = 1}), 2u * 127 * 128);
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
  const ParallelGroups g = WorldGroups(s).of(1, 1);
  EXPECT_EQ(g.context.ranks.listed(), (Ranks{0, 1}));
  EXPECT_EQ(g.data.ranks.listed(), (Ranks{1, 3}));
  EXPECT_EQ(g.data_context.ranks.listed(), (Ranks{0, 1, 2, 3}));
  EXPECT_EQ(g.data_context.id, 0u);
  EXPECT_EQ(g.tensor.id, ParallelGroups::no_group);
  EXPECT_FALSE(parallel_problem(s, 1));
}

// parallel_state makes one communicator for each group that it names. The data-parallel ranks' come first, so that what is alike elsewhere stays so.
TEST(megatron_groups, of_the_same_ranks_meet_in_communicators_of_their_own) {
  const Scenario s = of_ranks(2, {{"tp", {{0, 1}}}});
  for (const std::uint32_t rank : {0u, 1u}) {
    const ParallelGroups g = WorldGroups(s).of(1, rank);
    ASSERT_EQ(g.tensor.id, g.model.id);
    const std::set<std::uint32_t> different{g.tensor.communicator, g.model.communicator, g.expert_model.communicator, g.of_instance.communicator};
    EXPECT_EQ(different.size(), 4u);
    EXPECT_LT(*different.rbegin(), communicators_max);
  }
  const ParallelGroups data = WorldGroups(of_ranks(2, {})).of(1, 0);
  EXPECT_EQ(data.data_context.communicator, 0u);
  EXPECT_EQ(data.instance.communicator, 0u) << "of one instance they are the same group";
  EXPECT_NE(data.of_instance.communicator, 0u);
}

TEST(megatron_groups, that_meet_and_have_no_name_are_asked_for) {
  const auto problem = parallel_problem(of_ranks(4, {{"tp", {{0, 1}, {2, 3}}}}), 1);
  ASSERT_TRUE(problem);
  EXPECT_EQ(problem->where, "/groups");
  EXPECT_NE(problem->message.find("ranks 0, 2"), std::string::npos) << problem->message;
}

TEST(megatron_groups, that_cannot_be_cut_into_instances_are_refused_on_any_rank) {
  const auto problem = parallel_problem(of_ranks(2, {}), 3);
  ASSERT_TRUE(problem);
  EXPECT_EQ(problem->where, "/engine/config/ddp/num_distributed_optimizer_instances");
  EXPECT_TRUE(parallel_problem(of_ranks(2, {}), 0));
  // Rank 0's place is shared by four, rank 1's by two: a group leaves ranks out.
  const auto uneven = parallel_problem(of_ranks(6, {{"tp", {{0, 1}, {2, 3}}}}), 4);
  ASSERT_TRUE(uneven);
  EXPECT_NE(uneven->message.find("the 2 data-parallel ranks of rank 1"), std::string::npos) << uneven->message;
}

TEST(megatron_groups, of_pipelines_that_cross_are_their_own) {
  const Scenario s = of_ranks(4, {{"pp", {{0, 3}, {1, 2}}}});
  EXPECT_EQ(WorldGroups(s).of(1, 1).pipeline.ranks.listed(), (Ranks{1, 2}));
  EXPECT_EQ(WorldGroups(s).of(1, 3).pipeline.ranks.listed(), (Ranks{0, 3}));
  EXPECT_EQ(last_stages(s, RankList::every(0, 1, 4)), (Ranks{3, 2, 2, 3}));
}

TEST(megatron_groups, of_a_rank_that_no_group_has_are_itself) {
  const ParallelGroups left_out = WorldGroups(of_ranks(6, {{"tp", {{0, 1}, {2, 3}}}})).of(1, 5);
  EXPECT_EQ(left_out.tensor.ranks.listed(), (Ranks{5}));
  EXPECT_EQ(left_out.data_context.ranks.listed(), (Ranks{0, 2, 4, 5}));
}

Scenario two_layers() {
  Scenario s = of_ranks(2, {});
  s.parameters.push_back({"b", 4, std::nullopt});
  s.engine.framework = "megatron";
  s.gradients.kind = GradientKind::normal;
  s.after_error = AfterError::go_on;
  return s;
}

// Errors of a script, by event, and what each rank's buffers were multiplied by.
struct Ran {
  std::map<std::uint32_t, std::string> errors;
  std::vector<std::vector<double>> factors;
};

Ran ran(const Scenario& s, const MegatronConfig& config) {
  struct Sink final : TraceSink {
    void engine_error(const EngineErrorRecord& e) override { errors[e.event] = e.type + ": " + e.message; }
    std::map<std::uint32_t, std::string> errors;
  } sink;
  EXPECT_FALSE(megatron_refusal(s, config));
  const auto timeline = unroll(s, s.script, megatron_contract(s, config, behaviour_of(s.engine.as_of).value()));
  EXPECT_TRUE(timeline.ok());
  const auto source = ref::value_source(s, *timeline, s.gradients.kind, 1);
  const WorldGroups groups(s);
  HostExecutor executor(s, *timeline, CollectiveArithmetic::nccl_ring,
                        [&](const EngineContext& context) { return std::make_unique<MegatronEngine>(make_setup(context, groups, config, Machine::device)); });
  executor.run(*source, {}, sink);
  Ran out{sink.errors, {}};
  for (const auto& rank : executor.ranks()) {
    out.factors.emplace_back();
    for (const Op& op : rank.program.ops)
      if (op.kind == OpKind::multiply) out.factors.back().push_back(op.scalar);
  }
  return out;
}

// As in Megatron-Core: start_param_sync() asserts that no gather is on its way.
TEST(megatron_gathers, that_nobody_waited_for_are_not_dispatched_again) {
  Scenario s = two_layers();
  ScriptItem finalize = item_of(ScriptKind::of_framework), backward = item_of(ScriptKind::backward);
  finalize.event.name = finalize_event;
  finalize.event.reduces = true;
  backward.uses = {"a"};
  for (int window = 0; window < 2; ++window)
    for (const ScriptItem& item : {item_of(ScriptKind::engine_zero_grad), backward, finalize, item_of(ScriptKind::step)}) s.script.push_back(item);
  const char* text = R"({"ddp": {"use_distributed_optimizer": true, "overlap_grad_reduce": true, "overlap_param_gather": true, "bucket_size": 1}})";
  const auto errors = ran(s, megatron_config_from_json(json::parse(text), "").value()).errors;
  ASSERT_TRUE(errors.contains(5));
  EXPECT_EQ(errors.at(5), "AssertionError: ");
}

TEST(megatron_tokens, are_those_of_the_last_stage_of_each_ranks_own_pipeline) {
  Scenario s = of_ranks(4, {{"pp", {{0, 3}, {1, 2}}}, {"dp", {{0, 1}, {2, 3}}}});
  s.engine.framework = "megatron";
  s.engine.pipeline_stages = 2;
  s.parameters.push_back({"b", 4, std::nullopt});
  s.parameters[1].pipeline_stage = 1;
  s.gradients.kind = GradientKind::normal;
  s.tokens.table = std::vector<std::vector<std::vector<std::uint32_t>>>{{{0}, {0}, {3}, {5}}};
  ScriptItem finalize = item_of(ScriptKind::of_framework);
  finalize.event.name = finalize_event;
  finalize.event.reduces = true;
  s.script = {item_of(ScriptKind::engine_zero_grad), item_of(ScriptKind::backward), finalize, item_of(ScriptKind::step)};
  const char* text = R"({"model": {"calculate_per_token_loss": true}, "schedule": {"num_microbatches": 1, "loss": "sum_and_tokens"}})";
  const auto config = megatron_config_from_json(json::parse(text), "");
  ASSERT_TRUE(config) << config.error().text();
  const Ran run = ran(s, *config);
  EXPECT_TRUE(run.errors.empty());
  for (const std::vector<double>& factors : run.factors) EXPECT_EQ(factors, (std::vector<double>{1.0 / 8}));
}

TEST(megatron_behaviour, of_a_release_that_is_newer_than_all_says_so) {
  EXPECT_EQ(release_note("99.0.0"), "99.0.0 is newer than every release that is modelled; taken as the newest of them, 0.19.2");
  EXPECT_EQ(release_note("0.18.9"), "0.18.9 is no release of Megatron-Core that was compared; taken as 0.18.2");
  for (const char* known : {"0.8.0", "0.19.0", "0.19.2", "core_v0.16.1", "head"}) EXPECT_FALSE(release_note(known)) << known;
}

TEST(rules_of_documented_use, have_ids_that_no_other_framework_uses) {
  std::set<std::string_view> ids;
  for (const Framework* framework : frameworks())
    for (const UseRule& rule : framework->use_rules()) EXPECT_TRUE(ids.insert(rule.id).second) << rule.id << " of " << framework->id();
  EXPECT_FALSE(ids.empty());
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
      "parameters": {"a": ["shared_embedding", "shared"]}, "schedule": {"num_microbatches": 4, "loss": "sum_and_tokens", "grad_sync_func": true,
      "model_chunks": [["a"], ["b", "c"]], "microbatch_group_size_per_vp_stage": 4}})");
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
