// The rules of FullyShardedDataParallel one by one; that their sum is PyTorch is what the recorded runs show.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <map>

#include "sim/engine/clipping.h"
#include "sim/frameworks/torch/fsdp1/admission.h"
#include "sim/frameworks/torch/fsdp1/config_json.h"
#include "sim/frameworks/torch/fsdp1/contract.h"
#include "sim/frameworks/torch/fsdp1/fully_sharded.h"
#include "tests/engine/sharded_run.h"

namespace gradledger::torch::flat_sharded {
namespace {

using nlohmann::json;

ScriptItem flat_item(ScriptKind kind) {
  ScriptItem out;
  out.kind = kind;
  return out;
}

const ScriptItem flat_backward = flat_item(ScriptKind::backward), flat_step = flat_item(ScriptKind::step), flat_zero_grad = flat_item(ScriptKind::optimizer_zero_grad);

ScriptItem in_no_sync(std::vector<ScriptItem> items) {
  ScriptItem out = flat_item(ScriptKind::no_sync);
  out.items = std::move(items);
  return out;
}

using testing::sharded_scenario;
using testing::ShardedRun;

Fsdp1Config flat_config(const char* text) {
  json object = json::parse(text);
  if (!object.contains("wrap") && !object.contains("units")) object["units"] = json::parse(R"([["w1"], ["w2"]])");
  return fsdp1_config_from_json(object, "").value();
}

ShardedRun run_flat(std::vector<ScriptItem> script, const char* config_text = "{}", const std::function<void(EngineConfig&)>& change = {}) {
  Scenario s = sharded_scenario(std::move(script));
  if (change) change(s.engine);
  const Fsdp1Config config = flat_config(config_text);
  EXPECT_FALSE(fsdp1_refusal(s, config));
  return testing::sharded_run(
      s, fsdp1_contract(s, config), [&](const EngineContext& context) { return std::make_unique<FullyShardedDataParallel>(context, config, behaviour_at(s.engine.as_of).value()); },
      [](const CollectiveCall& c) { return name_of(c.kind); });
}

TEST(fully_sharded_modules, are_gathered_in_order_and_reduced_from_the_last) {
  EXPECT_EQ(run_flat({flat_backward}).calls[0], "gather 2, gather 3, gather 3, gather 3, gather 3, reduce_scatter 6, reduce_scatter 6, reduce_scatter 4");
}

TEST(fully_sharded_modules, stay_gathered_between_forward_and_backward_where_gradients_alone_are_cut) {
  const ShardedRun seen = run_flat({in_no_sync({flat_backward}), flat_backward}, R"({"sharding_strategy": "SHARD_GRAD_OP"})");
  EXPECT_EQ(seen.calls.at(1), "gather 2, gather 3, gather 3");
  EXPECT_EQ(seen.calls.at(3), "reduce_scatter 6, reduce_scatter 6, reduce_scatter 4") << "weights stay gathered behind a backward that is not reduced";
}

TEST(fully_sharded_modules, are_whole_on_every_rank_without_shards) {
  EXPECT_EQ(run_flat({flat_backward}, R"({"sharding_strategy": "NO_SHARD"})").calls[0], "all_reduce 6, all_reduce 5, all_reduce 4");
}

TEST(fully_sharded_modules, are_gathered_ahead_where_it_is_asked_for) {
  const ShardedRun seen = run_flat({flat_backward, flat_backward}, R"({"forward_prefetch": true, "backward_prefetch": "none"})");
  // Views of a module that is gathered ahead are older than the forward of the one before it, and their gradient comes behind that one's.
  EXPECT_EQ(seen.calls.at(1), "gather 2, gather 3, gather 3, gather 3, gather 3, reduce_scatter 6, reduce_scatter 6, reduce_scatter 4");
}

TEST(fully_sharded_steps, raise_on_gradients_that_are_whole) {
  EXPECT_EQ(run_flat({in_no_sync({flat_backward}), flat_step}).errors.at(3),
            "RuntimeError: The size of tensor a (2) must match the size of tensor b (4) at non-singleton dimension 0");
  EXPECT_TRUE(run_flat({in_no_sync({flat_backward}), flat_step}, R"({"sharding_strategy": "NO_SHARD"})").errors.empty());
}

TEST(fully_sharded_exceptions, leave_modules_whose_next_forward_registers_nothing) {
  ScriptItem raises = flat_backward;
  raises.raises_after = 1;
  const ShardedRun seen = run_flat({raises, in_no_sync({flat_backward}), flat_backward});
  EXPECT_EQ(seen.calls.at(0), "gather 2, gather 3, gather 3, gather 3, gather 3, reduce_scatter 6") << "the last module is reduced before the exception";
  EXPECT_EQ(seen.errors.at(1), "ValueError: expected to be in states [<TrainingState.IDLE: 1>] but current state is TrainingState.FORWARD_BACKWARD");
  EXPECT_EQ(seen.calls.at(2), "gather 3, gather 3, reduce_scatter 6, reduce_scatter 6, reduce_scatter 4") << "no_sync was not entered, and the other modules are gathered still";
  EXPECT_EQ(seen.calls.at(4), "gather 2, gather 3, gather 3, gather 3, gather 3, reduce_scatter 6, reduce_scatter 6, reduce_scatter 4");
}

// Of the first parameter the gradient is whole and the data are not; the last one is gathered, as a backward of it raised.
TEST(fully_sharded_moments, are_as_large_as_flat_parameters_were_when_their_group_began_to_step) {
  ScriptItem raises = flat_backward;
  raises.raises_after = 0;
  raises.uses = {"w2"};
  const std::vector<ScriptItem> script{in_no_sync({flat_backward}), raises, flat_step, flat_zero_grad, flat_backward, flat_step};
  const auto errors_with = [&](OptimizerType type, double decay, std::vector<OptimizerGroup> groups) {
    return run_flat(script, R"({"wrap": "layers"})",
                    [&](EngineConfig& engine) {
                      engine.optimizer.type = type;
                      engine.optimizer.weight_decay = decay;
                      engine.param_groups = std::move(groups);
                    })
        .errors;
  };
  const auto does_not_match = [](int a, int b) {
    return "RuntimeError: The size of tensor a (" + std::to_string(a) + ") must match the size of tensor b (" + std::to_string(b) + ") at non-singleton dimension 0";
  };
  const auto adam = errors_with(OptimizerType::adam, 0, {});
  EXPECT_EQ(adam.at(4), does_not_match(2, 4)) << "moments of a shard, and a gradient of the whole";
  EXPECT_EQ(adam.at(7), does_not_match(6, 3)) << "made with those of its group, before any of them stepped";
  EXPECT_EQ(errors_with(OptimizerType::adam, 0.5, {}).at(4), does_not_match(4, 2)) << "the gradient, and the weights that decay adds to it";
  EXPECT_EQ(errors_with(OptimizerType::adamw, 0.5, {}).at(4), does_not_match(2, 4));
  const auto of_groups = errors_with(OptimizerType::adam, 0, {{.parameters = {0}}, {.parameters = {1, 2}}});
  EXPECT_EQ(of_groups.at(4), does_not_match(2, 4));
  EXPECT_FALSE(of_groups.contains(7)) << "the second group had not begun";
}

TEST(fully_sharded_streams, do_not_race) {
  const std::vector<ScriptItem> loop{in_no_sync({flat_backward}), flat_backward, flat_step, flat_zero_grad, flat_backward, flat_step};
  for (const char* config : {"{}", R"({"sharding_strategy": "SHARD_GRAD_OP", "use_orig_params": true})", R"({"sharding_strategy": "NO_SHARD"})", R"({"offload": true})",
                             R"({"mixed_precision": {"param_dtype": "bf16", "reduce_dtype": "fp32"}})", R"({"wrap": "root", "backward_prefetch": "BACKWARD_POST"})"}) {
    const ShardedRun seen = run_flat(loop, config);
    EXPECT_EQ(seen.races, 0u) << config;
    EXPECT_TRUE(seen.errors.empty()) << config;
  }
}

TEST(fully_sharded_layouts, pad_between_parameters_and_behind_them) {
  const Scenario s = sharded_scenario({});
  const Layout plain = modules_of(s, flat_config(R"({"wrap": "root"})"), 0).layouts[0],
               views = modules_of(s, flat_config(R"({"wrap": "root", "use_orig_params": true})"), 0).layouts[0];
  EXPECT_EQ(plain.unpadded_numel, 15u);
  EXPECT_EQ(plain.shard_numel, 8u);
  EXPECT_EQ(views.parts[1].offset, 4u);
  EXPECT_EQ(views.parts[2].offset, 12u) << "16 bytes are four elements";
  EXPECT_EQ(views.unpadded_numel, 18u);
  const Layout::Piece piece = plain.piece(plain.parts[1], 1);
  EXPECT_EQ(piece.offset, 0u);
  EXPECT_EQ(piece.parameter_offset, 4u);
  EXPECT_EQ(piece.numel, 1u);
  EXPECT_EQ(plain.piece(plain.parts[0], 1).numel, 0u);
}

std::string flat_refusal(const char* config, const std::function<void(Scenario&)>& change = {}) {
  Scenario s = sharded_scenario({flat_backward});
  if (change) change(s);
  const auto read = fsdp1_config_from_json(json::parse(config), "/engine/config");
  if (!read) return read.error().where;
  if (const auto problem = fsdp1_refusal(s, *read)) return problem->where;
  if (const auto problem = not_judged(s)) return problem->where;
  return "";
}

TEST(fully_sharded_refusals, point_at_what_stands_in_the_way) {
  EXPECT_EQ(flat_refusal("{}"), "");
  EXPECT_EQ(flat_refusal(R"({"units": [["w1"]], "wrap": "root"})"), "/engine/config/units");
  EXPECT_EQ(flat_refusal(R"({"units": [["w1", "w1"]]})"), "/engine/config/units/0/1");
  EXPECT_EQ(flat_refusal(R"({"units": [["w0", "w2"]]})"), "/engine/config/units/0/1");
  EXPECT_EQ(flat_refusal(R"({"units": [["nobody"]]})"), "/engine/config/units/0/0");
  EXPECT_EQ(flat_refusal(R"({"sharding_strategy": "HYBRID_SHARD"})"), "/engine/config/sharding_strategy");
  EXPECT_EQ(flat_refusal(R"({"mesh": ["world", "rank"]})"), "/engine/config/mesh");
  EXPECT_EQ(flat_refusal(R"({"sharding_strategy": "HYBRID_SHARD", "mesh": ["world", "rank"]})"), "");
  EXPECT_EQ(flat_refusal(R"({"sharding_strategy": "HYBRID_SHARD", "mesh": ["world", "nowhere"]})"), "/engine/config/mesh/1");
  EXPECT_EQ(flat_refusal(R"({"plain_grad_scaler": true})"), "/engine/config/plain_grad_scaler");
  EXPECT_EQ(flat_refusal(R"({"mixed_precision": {"keep_low_precision_grads": true}})"), "/engine/config/mixed_precision/keep_low_precision_grads");
  EXPECT_EQ(flat_refusal("{}", [](Scenario& s) { s.parameters[1].trainable = false; }), "/parameters/1/trainable");
  EXPECT_EQ(flat_refusal(R"({"wrap": "root"})", [](Scenario& s) { s.parameters[1].dtype = Dtype::bfloat16; }), "/parameters/1/dtype");
  EXPECT_EQ(flat_refusal("{}", [](Scenario& s) { s.script = {in_no_sync({in_no_sync({flat_backward})})}; }), "/script/0/no_sync/0");
  EXPECT_EQ(flat_refusal("{}", [](Scenario& s) { s.script = {flat_item(ScriptKind::set_boundary)}; }), "/script/0");
}

TEST(fully_sharded_refusals, name_a_module_without_elements) {
  const auto empty = [](Scenario& s) { s.parameters[1].numel = 0; };
  EXPECT_EQ(flat_refusal("{}", empty), "/parameters/1/numel");
  EXPECT_EQ(flat_refusal(R"({"wrap": "root"})", empty), "") << "the others of its module have some";
}

TEST(fully_sharded_clipping, multiplies_by_nan_where_the_norm_is) {
  EXPECT_TRUE(std::isnan(loop_clip_factor(std::numeric_limits<double>::quiet_NaN(), 1.0)));
  EXPECT_EQ(loop_clip_factor(0.5, 1.0), 1.0f);
  EXPECT_EQ(loop_clip_factor(std::numeric_limits<double>::infinity(), 1.0), 0.0f);
}

// What PyTorch 2.13 makes of a norm and a limit.
TEST(fully_sharded_clipping, rounds_a_factor_in_16_bits_behind_each_operation) {
  struct Case {
    double norm, max_norm, bf16, fp16;
  };
  for (const Case& c : {Case{390, 1, 0.0025634765625, 0.0025634765625}, Case{1, 0.01, 0.010009765625, 0.01000213623046875}, Case{3, 2, 0.66796875, 0.66650390625},
                        Case{7, 3, 0.427734375, 0.428466796875}, Case{11, 0.3, 0.0272216796875, 0.0272674560546875}, Case{0, 0.5, 1, 1}}) {
    EXPECT_EQ(loop_clip_factor(c.norm, c.max_norm, Dtype::bfloat16), static_cast<float>(c.bf16)) << c.norm;
    EXPECT_EQ(loop_clip_factor(c.norm, c.max_norm, Dtype::float16), static_cast<float>(c.fp16)) << c.norm;
  }
  EXPECT_EQ(rounded_to(Dtype::bfloat16, loop_clip_factor(11, 0.3)), 0.0272216796875f) << "the factor of shards: fp32, rounded once";
}

TEST(fully_sharded_refusals, of_a_clip_are_of_gradients_of_several_dtypes) {
  ScriptItem clip = flat_item(ScriptKind::clip);
  clip.max_norm = 1;
  const auto clipped = [&](Scenario& s) { s.script = {flat_backward, clip, flat_step}; };
  EXPECT_EQ(flat_refusal(R"({"mixed_precision": {"param_dtype": "bf16", "keep_low_precision_grads": true}})", clipped), "");
  EXPECT_EQ(flat_refusal("{}",
                         [&](Scenario& s) {
                           clipped(s);
                           s.parameters[1].dtype = Dtype::bfloat16;
                         }),
            "/script/1/clip");
}

}  // namespace
}  // namespace gradledger::torch::flat_sharded
