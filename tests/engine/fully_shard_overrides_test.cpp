// param_dtype_override_fn of fully_shard, as PyTorch 2.15 has it: parameters of one module that compute in several dtypes.
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "ref/probes.h"
#include "sim/execution/host_executor.h"
#include "sim/frameworks/torch/fsdp2/config_json.h"
#include "sim/frameworks/torch/fsdp2/framework.h"
#include "sim/load.h"
#include "sim/numeric/dtype_names.h"
#include "tests/engine/sharded_run.h"

namespace gradledger::torch::fully_shard {
namespace {

using nlohmann::json;

json with_policy(const char* policy, const char* as_of = "2.15.0") {
  json out = json::parse(R"({"name": "a", "world_size": 2, "parameters": [{"name": "w0", "numel": 4}, {"name": "w1", "numel": 6}], "model_dtype": "fp32",
                             "engine": {"framework": "fsdp2", "config": {"wrap": "root"}, "optimizer": {"type": "SGD", "lr": 1.0}}, "script": [{"backward": {}}, {"step": {}}]})");
  out["engine"]["as_of"] = as_of;
  out["engine"]["config"]["mixed_precision"] = json::parse(policy);
  return out;
}

Scenario policy_scenario(const json& document) { return parse_whole_scenario(document.dump(), ".").value(); }

std::string policy_refusal(const json& document) {
  const Scenario s = policy_scenario(document);
  const auto selected = fsdp2()->select(s);
  return selected ? "" : selected.error().text();
}

struct OverrideRun {
  std::set<std::string> buffers;                     // "w0.unsharded_param bf16"
  std::string reduced;                               // "fp32 10"
  std::uint64_t gathered_numel = 0, sent_numel = 0;  // of the first gather
};

OverrideRun run_of(const json& document) {
  const Scenario s = policy_scenario(document);
  EXPECT_EQ(policy_refusal(document), "");
  const auto timeline = unroll(s, s.script, fsdp2()->contract(s).value());
  const auto source = ref::value_source(s, *timeline, GradientKind::normal, 1);
  testing::ShardedSink sink;
  HostExecutor executor(s, *timeline, CollectiveArithmetic::nccl_ring, fsdp2()->factory(s));
  executor.run(*source, {}, sink);
  EXPECT_TRUE(sink.errors.empty());
  const Program& program = executor.ranks()[0].program;
  OverrideRun out;
  for (const BufferDeclaration& b : program.buffers) out.buffers.insert(b.name + " " + std::string(name_of(b.dtype)));
  for (const CollectiveCall& c : program.collectives) {
    if (c.kind == CollectiveKind::reduce_scatter) out.reduced += std::string(name_of(program.buffers[c.input.buffer].dtype)) + " " + std::to_string(c.input.numel);
    if (c.kind != CollectiveKind::all_gather || out.gathered_numel > 0) continue;
    out.gathered_numel = c.input.numel;
    out.sent_numel = c.compressed_numel;
  }
  return out;
}

constexpr const char *keeps_w1 = R"({"param_dtype": "bf16", "reduce_dtype": "fp32", "param_dtype_override_fn": {"w1": "fp32"}})",
                     *of_all = R"({"param_dtype": "bf16", "reduce_dtype": "fp32"})";

TEST(param_dtype_override_fn, lets_a_parameter_of_a_module_compute_in_the_dtype_of_its_weight) {
  const OverrideRun some = run_of(with_policy(keeps_w1));
  for (const char* buffer : {"w0.unsharded_param bf16", "w1.unsharded_param fp32", "w0.unsharded_param.grad bf16", "w1.unsharded_param.grad fp32"})
    EXPECT_TRUE(some.buffers.contains(buffer)) << buffer;
  EXPECT_EQ(some.reduced, "fp32 10");
  EXPECT_TRUE(run_of(with_policy(of_all)).buffers.contains("w1.unsharded_param bf16"));
  EXPECT_TRUE(run_of(with_policy(R"({"param_dtype": "bf16", "param_dtype_override_fn": {"w1": "bf16"}})")).buffers.contains("w1.unsharded_param bf16"));
  EXPECT_TRUE(run_of(with_policy(R"({"param_dtype_override_fn": {"w1": "fp32"}})")).buffers.contains("w0.unsharded_param fp32")) << "without a param_dtype nothing is cast";
}

// A share of w0 has 2 elements and one of w1 has 3: 4 and 12 bytes, which are those of 4 elements in fp32.
TEST(param_dtype_override_fn, has_each_parameter_gathered_by_its_own_bytes) {
  const OverrideRun some = run_of(with_policy(keeps_w1)), bf16 = run_of(with_policy(of_all));
  EXPECT_EQ(some.gathered_numel, 5u);
  EXPECT_EQ(some.sent_numel, 4u);
  EXPECT_TRUE(some.buffers.contains("all_gather_output[w0] fp32"));
  EXPECT_EQ(bf16.gathered_numel, 5u);
  EXPECT_EQ(bf16.sent_numel, 0u);
  EXPECT_TRUE(bf16.buffers.contains("all_gather_output[w0] bf16"));
}

TEST(param_dtype_override_fn, leaves_the_reduction_in_its_one_dtype) {
  EXPECT_EQ(run_of(with_policy(R"({"param_dtype": "bf16", "param_dtype_override_fn": {"w1": "fp32"}})")).reduced, "fp32 10");
  EXPECT_EQ(run_of(with_policy(R"({"param_dtype": "bf16", "reduce_dtype": "bf16", "param_dtype_override_fn": {"w1": "fp32"}})")).reduced, "bf16 10");
  json narrow = with_policy(R"({"param_dtype": "fp32", "param_dtype_override_fn": {"w1": "bf16"}})");
  narrow["model_dtype"] = "bf16";
  const OverrideRun of_bf16 = run_of(narrow);
  EXPECT_EQ(of_bf16.reduced, "bf16 10");
  EXPECT_TRUE(of_bf16.buffers.contains("w0.unsharded_param fp32"));
  EXPECT_TRUE(of_bf16.buffers.contains("w1.unsharded_param bf16"));
}

TEST(param_dtype_override_fn, is_held_to_the_narrower_of_two_dtypes) {
  const auto computed = [](const char* policy) { return fsdp2()->contract(policy_scenario(with_policy(policy))).value().computed; };
  EXPECT_EQ(computed(keeps_w1), Dtype::bfloat16);
  EXPECT_EQ(computed(R"({"param_dtype": "bf16", "reduce_dtype": "fp32", "param_dtype_override_fn": {"w0": "fp32", "w1": "fp32"}})"), Dtype::float32);
}

TEST(param_dtype_override_fn, is_refused_where_pytorch_refuses_it) {
  const std::string where = "/engine/config/mixed_precision/param_dtype_override_fn";
  EXPECT_EQ(policy_refusal(with_policy(R"({"param_dtype": "bf16", "param_dtype_override_fn": {"w1": "fp16"}})")),
            where +
                "/w1: PyTorch refuses this at initialisation: ValueError: param_dtype_override_fn must return None, param_dtype, or the parameter's original dtype but got "
                "torch.float16 for a parameter with dtype torch.float32 and param_dtype torch.bfloat16");
  EXPECT_NE(policy_refusal(with_policy(R"({"param_dtype_override_fn": {"w1": "fp16"}})")).find("and param_dtype None"), std::string::npos);
  EXPECT_EQ(policy_refusal(with_policy(R"({"param_dtype": "bf16", "param_dtype_override_fn": {"w7": "fp32"}})")), where + ": names no parameter: \"w7\"");
  EXPECT_EQ(policy_refusal(with_policy(keeps_w1, "2.14.1")).substr(0, where.size() + 32), where + ": is not in PyTorch 2.14.1: full");
}

TEST(param_dtype_override_fn, has_no_contract_for_two_dtypes_of_16_bits) {
  json document = with_policy(R"({"param_dtype": "bf16", "param_dtype_override_fn": {"w1": "fp16"}})");
  document["model_dtype"] = "fp16";
  EXPECT_NE(policy_refusal(document).find("for which there is no contract"), std::string::npos);
}

TEST(param_dtype_override_fn, is_written_as_it_is_read) {
  const json given = {{"mixed_precision", json::parse(keeps_w1)}};
  const auto config = fsdp2_config_from_json(given, "/engine/config");
  ASSERT_TRUE(config.ok());
  EXPECT_EQ(json::parse(fsdp2_config_to_json(*config).dump()), given);
  const auto wrong = fsdp2_config_from_json(json::parse(R"({"mixed_precision": {"param_dtype_override_fn": {"w/1": "int8"}}})"), "/engine/config");
  ASSERT_FALSE(wrong.ok());
  EXPECT_EQ(wrong.error().where, "/engine/config/mixed_precision/param_dtype_override_fn/w~11");
}

}  // namespace
}  // namespace gradledger::torch::fully_shard
