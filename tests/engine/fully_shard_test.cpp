// The rules of fully_shard one by one; that their sum is PyTorch is what the recorded runs show.
#include <gtest/gtest.h>

#include <map>

#include "sim/frameworks/torch/fsdp2/admission.h"
#include "sim/frameworks/torch/fsdp2/calls.h"
#include "sim/frameworks/torch/fsdp2/config_json.h"
#include "sim/frameworks/torch/fsdp2/contract.h"
#include "sim/frameworks/torch/fsdp2/fsdp_module.h"
#include "sim/frameworks/torch/fsdp2/not_judged.h"
#include "sim/scenario/schema.h"
#include "tests/engine/sharded_run.h"

namespace gradledger::torch::fully_shard {
namespace {

using nlohmann::json;

ScriptItem item(ScriptKind kind) {
  ScriptItem out;
  out.kind = kind;
  return out;
}

ScriptItem call(const std::string& name, const char* arguments) {
  ScriptItem out = item(ScriptKind::of_framework);
  out.event = {name, FrameworkValue(call_from_json(method_named(name), json::parse(arguments), "").value()), false, false, std::nullopt};
  return out;
}

using testing::sharded_scenario;
using testing::ShardedRun;

Fsdp2Config config_of(const char* text) {
  json object = json::parse(text);
  if (!object.contains("wrap") && !object.contains("units")) object["units"] = json::parse(R"([["w1"], ["w2"]])");
  return fsdp2_config_from_json(object, "").value();
}

ShardedRun run(std::vector<ScriptItem> script, const char* config_text = "{}") {
  const Scenario s = sharded_scenario(std::move(script));
  const Fsdp2Config config = config_of(config_text);
  EXPECT_FALSE(fsdp2_refusal(s, config));
  return testing::sharded_run(
      s, fsdp2_contract(s, config, behaviour_at(s.engine.as_of).value()),
      [&](const EngineContext& context) { return std::make_unique<FsdpModule>(context, config, behaviour_at(s.engine.as_of).value()); },
      [](const CollectiveCall& c) { return name_of(c.op); });
}

const ScriptItem backward = item(ScriptKind::backward), step = item(ScriptKind::step), zero_grad = item(ScriptKind::optimizer_zero_grad);

TEST(fully_shard_modules, are_gathered_in_order_and_reduced_from_the_last) {
  EXPECT_EQ(run({backward}).calls[0], "gather 2, gather 3, gather 3, gather 3, gather 3, avg 6, avg 6, avg 4");
}

TEST(fully_shard_modules, that_keep_their_parameters_are_gathered_once) {
  EXPECT_EQ(run({backward}, R"({"reshard_after_forward": false})").calls[0], "gather 2, gather 3, gather 3, avg 6, avg 6, avg 4");
  EXPECT_EQ(run({backward}, R"({"reshard_after_forward": true})").calls[0], "gather 2, gather 3, gather 3, gather 3, gather 3, gather 2, avg 6, avg 6, avg 4");
}

TEST(fully_shard_modules, whose_gradients_are_not_reduced_are_gathered_all_the_same) {
  const ShardedRun seen = run({call("set_requires_gradient_sync", R"({"value": false})"), backward, call("set_requires_gradient_sync", R"({"value": true})"), backward});
  EXPECT_EQ(seen.calls.at(1), "gather 2, gather 3, gather 3, gather 3, gather 3");
  EXPECT_EQ(seen.calls.at(3), "gather 2, gather 3, gather 3, gather 3, gather 3, avg 6, avg 6, avg 4");
}

TEST(fully_shard_factors, are_the_collectives_or_kernels) {
  EXPECT_EQ(run({backward}, R"({"wrap": "root", "gradient_divide_factor": 4})").calls[0], "gather 8, premultiplied sum 16");
  EXPECT_EQ(run({backward}, R"({"wrap": "root", "gradient_divide_factor": 2})").calls[0], "gather 8, avg 16");
  EXPECT_EQ(run({backward}, R"({"wrap": "root", "force_sum_reduction_for_comms": true})").calls[0], "gather 8, sum 16");
  EXPECT_EQ(run({backward}, R"({"wrap": "root", "mixed_precision": {"reduce_dtype": "fp16"}})").calls[0], "gather 8, sum 16");
}

TEST(fully_shard_exceptions, leave_nothing_that_reduces_until_they_are_reset) {
  ScriptItem raises = backward;
  raises.raises_after = 1;
  const ShardedRun left = run({raises, backward, backward});
  EXPECT_EQ(left.errors.at(0), "RuntimeError: raised by the script in a backward");
  EXPECT_EQ(left.calls.at(0), "gather 2, gather 3, gather 3, gather 3, gather 3, avg 6") << "the last module is reduced before the exception";
  EXPECT_EQ(left.calls.at(1), "gather 3") << "of the module that was given up";
  EXPECT_FALSE(left.calls.contains(2));
  const ShardedRun reset = run({raises, call("reset_iter_state", "{}"), backward});
  EXPECT_EQ(reset.calls.at(2), "gather 2, gather 3, gather 3, gather 3, gather 3, avg 6, avg 6, avg 4");
}

TEST(fully_shard_streams, race_with_the_step_where_nobody_waits_for_the_last_backward) {
  EXPECT_EQ(run({backward, backward, step, zero_grad, backward, step}).races, 0u);
  EXPECT_EQ(run({backward, backward, step, zero_grad, backward, step}, R"({"offload": true})").races, 0u);
  EXPECT_EQ(run({backward, step, zero_grad, backward, step}, R"({"mixed_precision": {"param_dtype": "bf16", "reduce_dtype": "fp32"}})").races, 0u);
  EXPECT_GT(run({call("set_is_last_backward", R"({"value": false})"), backward, step}).races, 0u);
}

TEST(fully_shard_cuts, give_the_last_ranks_less) {
  const Cut cut{5, 3, 2};
  EXPECT_EQ(cut.padded_numel(), 6u);
  EXPECT_EQ(cut.offset(2), 12u);
  EXPECT_EQ(cut.numel(2), 3u);
  EXPECT_EQ(cut.numel(3), 0u);
}

std::string refused(const char* config, std::vector<ScriptItem> script = {backward}) {
  const Scenario s = sharded_scenario(std::move(script));
  const auto read = fsdp2_config_from_json(json::parse(config), "/engine/config");
  if (!read) return read.error().where;
  if (const auto problem = fsdp2_refusal(s, *read)) return problem->where;
  const auto problem = not_judged(s, *read);
  return problem ? problem->where : "";
}

TEST(fully_shard_configurations, that_do_not_fit_are_refused_by_their_pointers) {
  EXPECT_EQ(refused("{}"), "");
  EXPECT_EQ(refused(R"({"units": [["w1"]], "wrap": "root"})"), "/engine/config/units");
  EXPECT_EQ(refused(R"({"units": [["w3"]]})"), "/engine/config/units/0/0");
  EXPECT_EQ(refused(R"({"units": [["w1"], ["w1"]]})"), "/engine/config/units/1/0");
  EXPECT_EQ(refused(R"({"units": [["w0", "w2"]]})"), "/engine/config/units/0/1");
  EXPECT_EQ(refused(R"({"nested": ["w1"]})"), "/engine/config/nested/0");
  EXPECT_EQ(refused(R"({"mesh": ["replicate", "world"]})"), "/engine/config/mesh/0");
  EXPECT_EQ(refused(R"({"mesh": ["world", "world"]})"), "/engine/config/mesh");
  EXPECT_EQ(refused(R"({"rows": {"w1": 2}})"), "/engine/config/rows/w1");
  EXPECT_EQ(refused(R"({"mixed_precision": {"param_dtype": "int8"}})"), "/engine/config/mixed_precision/param_dtype");
  EXPECT_EQ(refused(R"({"grad_scaler": {"init_scale": 3}})"), "/engine/config/grad_scaler/init_scale");
  EXPECT_EQ(refused(R"({"optimizer_in_backward": true, "grad_scaler": {}})"), "/engine/config/optimizer_in_backward");
  EXPECT_EQ(refused(R"({"bucket_cap_mb": 1})"), "/engine/config/bucket_cap_mb");
  EXPECT_EQ(refused(R"({"gradient_divide_factor": 0.1})"), "/engine/config/gradient_divide_factor");
  EXPECT_EQ(refused(R"({"gradient_divide_factor": 0.0000152587890625})"), "");
  EXPECT_EQ(refused(R"({"gradient_divide_factor": 3})"), "");
}

TEST(fully_shard_configurations, whose_replicas_hold_different_shards_are_no_mesh) {
  Scenario s = sharded_scenario({backward});
  s.world_size = 4;
  const Fsdp2Config config = config_of(R"({"mesh": ["replicate", "shard"]})");
  s.groups = {{"shard", {{0, 1}, {2, 3}}}, {"replicate", {{0, 2}, {1, 3}}}};
  EXPECT_FALSE(fsdp2_refusal(s, config));
  s.groups["replicate"] = {{0, 3}, {1, 2}};
  const auto problem = fsdp2_refusal(s, config);
  ASSERT_TRUE(problem);
  EXPECT_EQ(problem->where, "/engine/config/mesh");
  EXPECT_NE(problem->message.find("ranks 0 and 3 replicate each other and are number 0 and 1 of their shards"), std::string::npos) << problem->message;
}

TEST(fully_shard_exceptions, outside_of_no_sync_put_no_switch_back) {
  ScriptItem raised = item(ScriptKind::raise);
  raised.caught = true;
  const ShardedRun seen = run({call("set_requires_gradient_sync", R"({"value": false})"), raised, backward});
  EXPECT_EQ(seen.calls.at(2), "gather 2, gather 3, gather 3, gather 3, gather 3");
  ScriptItem block = item(ScriptKind::no_sync);
  block.items = {raised};
  const ShardedRun inside = run({block, backward});
  EXPECT_NE(inside.calls.rbegin()->second.find("avg"), std::string::npos);
}

TEST(fully_shard_calls, that_do_not_fit_are_refused_by_their_pointers) {
  const auto read = [](const char* name, const char* arguments) {
    const auto call = call_from_json(method_named(name), json::parse(arguments), "/script/0/event");
    return call ? "" : call.error().where;
  };
  EXPECT_EQ(read("set_requires_gradient_sync", "{}"), "/script/0/event/value");
  EXPECT_EQ(read("set_requires_gradient_sync", R"({"value": 1})"), "/script/0/event/value");
  EXPECT_EQ(read("set_gradient_divide_factor", R"({"value": 0})"), "/script/0/event/value");
  EXPECT_EQ(read("set_gradient_divide_factor", R"({"value": 2, "recurse": true})"), "/script/0/event/recurse");
  EXPECT_EQ(read("reshard", R"({"value": true})"), "/script/0/event/value");
  EXPECT_EQ(read("set_manual_backward_finalization", "{}"), "/script/0/event/value");
  EXPECT_EQ(read("set_manual_backward_finalization", R"({"value": true, "recurse": true})"), "/script/0/event/recurse");
  EXPECT_EQ(read("finalize_backward", R"({"async_op": 1})"), "/script/0/event/async_op");
  EXPECT_EQ(read("finalize_backward", R"({"value": true})"), "/script/0/event/value");
  EXPECT_EQ(read("wait_for_gradient_reduction", R"({"unit": 0})"), "/script/0/event/unit");
  const auto says = [](const char* name, const char* arguments) { return call_from_json(method_named(name), json::parse(arguments), "").error().message; };
  EXPECT_EQ(says("finalize_backward", R"({"async": true})"), "is no argument of finalize_backward; expected unit or async_op");
  EXPECT_EQ(says("wait_for_gradient_reduction", R"({"unit": 0})"), "is no argument of wait_for_gradient_reduction; expected none");
  EXPECT_EQ(refused("{}", {call("reshard", R"({"unit": 3})"), backward}), "/script/0/event/unit");
  ScriptItem of_a_rank = call("set_requires_gradient_sync", R"({"value": false, "unit": 0})");
  EXPECT_EQ(refused("{}", {of_a_rank, backward}), "");
  of_a_rank.ranks = {0};
  EXPECT_EQ(refused("{}", {of_a_rank, backward}), "");
  EXPECT_EQ(refused("{}", {call("set_requires_all_reduce", R"({"value": false})"), backward}), "/script/0/event");
  ScriptItem block = item(ScriptKind::no_sync);
  block.items = {backward};
  EXPECT_EQ(refused("{}", {call("set_requires_gradient_sync", R"({"value": true})"), block}), "");
  ScriptItem nested = item(ScriptKind::no_sync);
  nested.items = {block};
  EXPECT_EQ(refused("{}", {nested}), "/script/0/no_sync/0");
}

}  // namespace
}  // namespace gradledger::torch::fully_shard
