// Which dtypes gradients of fully_shard pass through, release by release, and what becomes of sums that were not reduced.
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "ref/probes.h"
#include "sim/execution/host_executor.h"
#include "sim/frameworks/torch/fsdp2/contract.h"
#include "sim/frameworks/torch/fsdp2/framework.h"
#include "sim/load.h"
#include "sim/numeric/dtype_names.h"
#include "tests/engine/sharded_run.h"

namespace gradledger::torch::fully_shard {
namespace {

using nlohmann::json;

// What rank 0 did: reductions as "fp32 8" by event, the dtypes that buffers of each name had, and errors.
struct Seen {
  std::map<std::uint32_t, std::string> reductions, errors;
  std::map<std::string, std::set<std::string>> dtypes;
};

json document_of(const char* as_of, const char* config, const char* script) {
  json out = json::parse(R"({"name": "a", "world_size": 2, "parameters": [{"name": "w0", "numel": 4}, {"name": "w1", "numel": 6}], "model_dtype": "fp32", "after_error": "go_on",
                             "engine": {"framework": "fsdp2", "config": {"wrap": "root"}, "optimizer": {"type": "SGD", "lr": 1.0}}})");
  out["engine"]["as_of"] = as_of;
  out["engine"]["config"].update(json::parse(config));
  out["script"] = json::parse(script);
  return out;
}

Scenario scenario_of(const json& document) { return parse_whole_scenario(document.dump(), ".").value(); }

Seen seen(const json& document) {
  const Scenario s = scenario_of(document);
  const Framework& framework = *fsdp2();
  EXPECT_TRUE(framework.select(s).ok()) << framework.select(s).error().text();
  const auto timeline = unroll(s, s.script, framework.contract(s).value());
  const auto source = ref::value_source(s, *timeline, s.gradients.kind, 1);
  testing::ShardedSink sink;
  HostExecutor executor(s, *timeline, CollectiveArithmetic::nccl_ring, framework.factory(s));
  executor.run(*source, {}, sink);
  Seen out;
  out.errors = sink.errors;
  const Program& program = executor.ranks()[0].program;
  for (const Op& op : program.ops) {
    if (op.kind != OpKind::collective || program.collectives[op.index].kind == CollectiveKind::all_gather) continue;
    const CollectiveCall& c = program.collectives[op.index];
    std::string& text = out.reductions[op.event];
    text += (text.empty() ? "" : ", ") + std::string(name_of(program.buffers[c.input.buffer].dtype)) + " " + std::to_string(c.input.numel);
  }
  for (const BufferDeclaration& b : program.buffers) out.dtypes[b.name].insert(std::string(name_of(b.dtype)));
  return out;
}

using Names = std::set<std::string>;

constexpr const char* computes_in_bf16 = R"({"mixed_precision": {"param_dtype": "bf16"}})";
constexpr const char* reduces_in_fp32 = R"({"mixed_precision": {"param_dtype": "bf16", "reduce_dtype": "fp32"}})";
constexpr const char* one_backward = R"([{"backward": {}}, {"step": {}}])";
constexpr const char* two_backwards = R"([{"no_sync": [{"backward": {}}]}, {"backward": {}}, {"step": {}}])";

TEST(fully_shard_dtypes, of_reductions_are_those_of_the_parameters_and_up_to_2_14_those_of_computing) {
  EXPECT_EQ(seen(document_of("2.14.1", computes_in_bf16, one_backward)).reductions.at(0), "bf16 10");
  EXPECT_EQ(seen(document_of("2.15.0", computes_in_bf16, one_backward)).reductions.at(0), "fp32 10");
  const char* stated = R"({"mixed_precision": {"param_dtype": "bf16", "reduce_dtype": "bf16"}})";
  for (const char* release : {"2.14.1", "2.15.0"}) EXPECT_EQ(seen(document_of(release, stated, one_backward)).reductions.at(0), "bf16 10") << release;
}

TEST(fully_shard_dtypes, of_weights_that_are_narrower_than_what_they_compute_in_are_those_of_the_weights_again) {
  for (const auto& [release, reduced] : {std::pair{"2.14.1", "fp32 10"}, std::pair{"2.15.0", "bf16 10"}}) {
    json document = document_of(release, R"({"mixed_precision": {"param_dtype": "fp32"}})", one_backward);
    document["model_dtype"] = "bf16";
    EXPECT_EQ(seen(document).reductions.at(0), reduced) << release;
  }
}

// A sum that goes over several backwards is wide from the first one on; a gradient that its own backward reduces is cast by the copy into the buffer.
TEST(fully_shard_dtypes, of_own_sums_are_those_of_the_reduction_in_the_leaf_itself) {
  const Seen summed = seen(document_of("2.15.0", reduces_in_fp32, two_backwards));
  EXPECT_EQ(summed.dtypes.at("w1.unsharded_param.grad"), (Names{"fp32"}));
  EXPECT_EQ(summed.dtypes.at("w1.unsharded_param.grad of a forward"), (Names{"bf16"})) << "cast before it is the sum's first term";
  EXPECT_EQ(summed.dtypes.at("w1.unsharded_param.grad of a sum"), (Names{"bf16"})) << "cast by the addition";
  EXPECT_FALSE(summed.dtypes.contains("w1.unsharded_accumulated_grad"));
  const Seen once = seen(document_of("2.15.0", reduces_in_fp32, one_backward));
  EXPECT_EQ(once.dtypes.at("w1.unsharded_param.grad"), (Names{"bf16"}));
  const Seen before = seen(document_of("2.14.1", reduces_in_fp32, two_backwards));
  EXPECT_EQ(before.dtypes.at("w1.unsharded_param.grad"), (Names{"bf16"}));
  EXPECT_EQ(before.dtypes.at("w1.unsharded_accumulated_grad"), (Names{"fp32"}));
}

// The cast of a first gradient is left out for one backward, and not for good.
TEST(fully_shard_dtypes, of_a_window_do_not_depend_on_the_window_before_it) {
  const Seen twice = seen(
      document_of("2.15.0", reduces_in_fp32, R"([{"backward": {}}, {"step": {}}, {"zero_grad": "optimizer"}, {"no_sync": [{"backward": {}}]}, {"backward": {}}, {"step": {}}])"));
  EXPECT_EQ(twice.dtypes.at("w1.unsharded_param.grad"), (Names{"bf16", "fp32"})) << "reduced at once in the first window, summed in the second";
}

// Where nothing was there before and nothing is reduced, each forward's gradient is cast before they are added up.
TEST(fully_shard_dtypes, of_a_sum_of_losses_are_cast_before_the_sum_if_it_stays) {
  const Seen stays = seen(document_of("2.15.0", reduces_in_fp32, R"([{"no_sync": [{"backward": {"sum_of": 2}}]}, {"backward": {}}, {"step": {}}])"));
  EXPECT_EQ(stays.dtypes.at("w1.unsharded_param.grad"), (Names{"fp32"}));
  EXPECT_EQ(stays.dtypes.at("w1.unsharded_param.grad of a forward"), (Names{"bf16"}));
  const Seen reduced = seen(document_of("2.15.0", reduces_in_fp32, R"([{"backward": {"sum_of": 2}}, {"step": {}}])"));
  EXPECT_EQ(reduced.dtypes.at("w1.unsharded_param.grad"), (Names{"bf16"}));
  EXPECT_FALSE(reduced.dtypes.contains("w1.unsharded_param.grad of a forward"));
}

TEST(fully_shard_dtypes, of_a_narrower_reduction_are_the_sums_too) {
  const char* narrower = R"({"mixed_precision": {"reduce_dtype": "bf16"}})";
  EXPECT_EQ(seen(document_of("2.15.0", narrower, two_backwards)).dtypes.at("w1.unsharded_param.grad"), (Names{"bf16"}));
  EXPECT_EQ(seen(document_of("2.14.1", narrower, two_backwards)).dtypes.at("w1.unsharded_param.grad"), (Names{"fp32"}));
}

TEST(fully_shard_dtypes, that_the_loop_gave_gradients_are_kept_since_2_15) {
  const auto of = [](const char* release) {
    json document = document_of(release, R"({"grad_dtype": "fp32"})", two_backwards);
    document["model_dtype"] = "bf16";
    return seen(document);
  };
  EXPECT_EQ(of("2.14.1").reductions.at(3), "bf16 10");
  const Seen kept = of("2.15.0");
  EXPECT_EQ(kept.reductions.at(3), "fp32 10");
  EXPECT_EQ(kept.dtypes.at("w1.unsharded_param.grad"), (Names{"fp32"}));
  EXPECT_FALSE(kept.dtypes.contains("reduce_output_cast[w0]")) << "a shard's gradient is in it too";
}

TEST(fully_shard_dtypes, that_differ_within_a_module_raise_up_to_2_14) {
  const char* script = R"([{"no_sync": [{"backward": {"uses": ["w0"]}}]}, {"backward": {"uses": ["w1"]}}, {"step": {}}])";
  EXPECT_EQ(seen(document_of("2.14.1", reduces_in_fp32, script)).errors.at(3),
            "AssertionError: FSDP reduce-scatter expects uniform gradient dtype but got {torch.float32, torch.bfloat16}");
  const Seen now = seen(document_of("2.15.0", reduces_in_fp32, script));
  EXPECT_TRUE(now.errors.empty());
  EXPECT_EQ(now.reductions.at(3), "fp32 10");
}

// What tensor-parallel ranks have parts of is added up over them before the reduction.
TEST(fully_shard_dtypes, of_sums_over_tensor_parallel_ranks_are_those_of_the_reduction) {
  for (const auto& [release, reduced] : {std::pair{"2.14.1", "fp16 6, fp32 10"}, std::pair{"2.15.0", "fp32 6, fp32 10"}}) {
    json document = document_of(release, R"({"mixed_precision": {"reduce_dtype": "fp32"}})", one_backward);
    document["model_dtype"] = "fp16";
    document["world_size"] = 4;
    document["layout"] = json::parse(R"({"tp": 2})");
    document["parameters"][1]["summed_over"] = "tp";
    EXPECT_EQ(seen(document).reductions.at(0), reduced) << release;
  }
}

// The optimizer promotes both, and what is unscaled is looked at by the dtype of the gradient.
TEST(fully_shard_dtypes, of_gradients_may_be_others_than_those_of_the_weights_that_are_stepped) {
  const Seen narrower = seen(document_of("2.15.0", R"({"grad_dtype": "bf16"})", one_backward));
  EXPECT_TRUE(narrower.errors.empty());
  EXPECT_EQ(narrower.dtypes.at("reduce_scatter_output[w0]"), (Names{"bf16"}));
  EXPECT_EQ(narrower.dtypes.at("w1.delta"), (Names{"fp32"}));
  for (const auto& [release, error] : {std::pair{"2.14.1", "ValueError: Attempting to unscale FP16 gradients."}, std::pair{"2.15.0", ""}}) {
    json document = document_of(release, R"({"grad_dtype": "fp32", "grad_scaler": {"init_scale": 8.0}})", one_backward);
    document["model_dtype"] = "fp16";
    const Seen scaled = seen(document);
    EXPECT_EQ(scaled.errors.contains(1) ? scaled.errors.at(1) : "", error) << release;
  }
}

// What the documentation of each release says of dtypes is what its gradients are held to.
TEST(fully_shard_dtypes, that_are_due_are_those_of_the_release) {
  struct Due {
    const char *release, *config;
    Dtype accumulation, wire;
    std::optional<Dtype> computed;
  };
  using enum Dtype;
  for (const Due& due : {Due{"2.14.1", computes_in_bf16, bfloat16, bfloat16, bfloat16}, Due{"2.15.0", computes_in_bf16, float32, float32, bfloat16},
                         Due{"2.14.1", reduces_in_fp32, bfloat16, float32, bfloat16}, Due{"2.15.0", reduces_in_fp32, float32, float32, bfloat16},
                         Due{"2.14.1", R"({"mixed_precision": {"reduce_dtype": "bf16"}})", float32, bfloat16, std::nullopt},
                         Due{"2.15.0", R"({"mixed_precision": {"reduce_dtype": "bf16"}})", bfloat16, bfloat16, bfloat16},
                         Due{"2.14.1", R"({"grad_dtype": "bf16"})", bfloat16, float32, std::nullopt}, Due{"2.15.0", R"({"grad_dtype": "bf16"})", bfloat16, bfloat16, bfloat16}}) {
    const Contract contract = fsdp2()->contract(scenario_of(document_of(due.release, due.config, one_backward))).value();
    EXPECT_EQ(contract.accumulation, due.accumulation) << due.release << due.config;
    EXPECT_EQ(contract.wire, due.wire) << due.release << due.config;
    EXPECT_EQ(contract.computed, due.computed) << due.release << due.config;
  }
}

TEST(fully_shard_dtypes, of_gradients_that_an_optimizer_with_moments_would_refuse_are_refused) {
  json document = document_of("2.15.0", R"({"grad_dtype": "bf16"})", one_backward);
  EXPECT_TRUE(fsdp2()->select(scenario_of(document)).ok());
  document["engine"]["optimizer"]["type"] = "AdamW";
  const auto refused = fsdp2()->select(scenario_of(document));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().where, "/engine/config/grad_dtype");
}

// ---- partial sums between replicas --------------------------------------------------------------------------------------------------

json of_replicas(const char* as_of, const char* first, const char* second) {
  json out = document_of(as_of, R"({"mesh": ["replicate", "shard"]})", "[]");
  out["groups"] = json::parse(R"({"replicate": [[0, 1]], "shard": [[0], [1]]})");
  out["script"] = json::parse(R"([{"event": {"name": "set_requires_all_reduce", "value": false}}, {"backward": {}}, {"event": {"name": "set_requires_all_reduce", "value": true}},
                                  {"backward": {}}, {"step": {}}])");
  out["script"][1]["backward"]["uses"] = json::parse(first);
  out["script"][3]["backward"]["uses"] = json::parse(second);
  return out;
}

TEST(fully_shard_partial_sums, of_parameters_that_the_next_micro_batch_does_not_use_are_reduced_with_it_since_2_15) {
  EXPECT_EQ(seen(of_replicas("2.14.1", R"(["w0"])", R"(["w1"])")).errors.at(3),
            "RuntimeError: The size of tensor a (6) must match the size of tensor b (4) at non-singleton dimension 0");
  const Seen now = seen(of_replicas("2.15.0", R"(["w0"])", R"(["w1"])"));
  EXPECT_TRUE(now.errors.empty());
  EXPECT_EQ(now.reductions.at(3), "fp32 10") << "both parameters";
  EXPECT_TRUE(now.dtypes.contains("w0.unsharded_zero_grad"));
  EXPECT_TRUE(now.dtypes.contains("_partial_reduce_output[w0]")) << "laid out anew";
  EXPECT_FALSE(seen(of_replicas("2.15.0", R"(["w0", "w1"])", R"(["w0", "w1"])")).dtypes.contains("_partial_reduce_output[w0]")) << "where nothing changed it is added in place";
}

TEST(fully_shard_partial_sums, are_found_by_no_parameter_behind_their_all_reduce) {
  json document = of_replicas("2.15.0", R"(["w0", "w1"])", R"(["w0", "w1"])");
  document["script"].push_back(json::parse(R"({"zero_grad": "optimizer"})"));
  document["script"].push_back(json::parse(R"({"backward": {"uses": ["w0"]}})"));
  EXPECT_EQ(seen(document).reductions.at(6), "fp32 4") << "and no zeros for w1, of which nothing waits";
}

// ---- reset_iter_state ---------------------------------------------------------------------------------------------------------------

TEST(fully_shard_resets, drop_gradients_since_2_15) {
  const char* script =
      R"([{"backward": {}}, {"no_sync": [{"backward": {"uses": ["w0"]}}]}, {"event": {"name": "reset_iter_state"}}, {"backward": {"uses": ["w1"]}}, {"step": {}}])";
  EXPECT_EQ(seen(document_of("2.14.1", "{}", script)).reductions.at(5), "fp32 10") << "w0 was kept";
  EXPECT_EQ(seen(document_of("2.15.0", "{}", script)).reductions.at(5), "fp32 6");
}

}  // namespace
}  // namespace gradledger::torch::fully_shard
