#include "sim/engine/behaviour.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <tuple>

#include "sim/scenario/history.h"

namespace gradledger::testing {
namespace {

std::string value_at(const std::string& as_of, const char* name) {
  const auto behaviour = resolve_behaviour(AsOf{as_of, {}});
  EXPECT_TRUE(behaviour.ok()) << as_of;
  return std::string(switch_value(*behaviour, name));
}

TEST(behaviours, each_change_moves_its_switch) {
  const std::vector<std::tuple<const char*, const char*, const char*, const char*>> moves{
      {"stage12_accumulator", "#7509", "averaged_gradients", "split_tests_AV"},
      {"stage12_accumulator", "#7665", "split_tests_AV", "split_tests_L"},
      {"scale_site", "#7665", "loss", "output_hook"},
      {"scale_site", "#8245", "output_hook", "engine_loss"},
      {"direct_epilogue", "#7665", "none", "hook_count"},
      {"direct_epilogue", "#7780", "hook_count", "end_of_graph"},
      {"direct_epilogue", "#8245", "end_of_graph", "end_of_sound_graph"},
      {"stage3_bucket_at_step", "#7780", "kept", "cleared"},
      {"stage12_full_bucket_key", "#6993", "communication_dtype", "model_dtype"},
      {"stage12_full_bucket_key", "#7636", "model_dtype", "communication_dtype"},
      {"owner_of_nothing", "#7509", "served", "raises"},
      {"owner_of_nothing", "#7700", "raises", "served"},
      {"bf16_immediate_default", "#4975", "off", "on"},
      {"bf16_immediate_default", "#6976", "on", "off"},
      {"fp16_st0_scale", "#7665", "applied", "missing"},
      {"order_bf16_epilogue", "#7665", "accumulate_then_reduce", "reduce_then_accumulate"},
      {"order_bf16_epilogue", "#7985", "reduce_then_accumulate", "accumulate_then_reduce"},
      {"bf16_acc_fp32_wrapper", "#7515", "BF16_Optimizer", "FP16_UnfusedOptimizer"},
      {"bf16_acc_fp32_wrapper", "#7788", "FP16_UnfusedOptimizer", "BF16_Optimizer"},
      {"stage3_id_increment", "#7780", "epilogue", "forward"},
      {"offload_keep", "#6550", "counter_only", "add_else_store"},
      {"offload_keep", "#7967", "add_else_store", "gate_ga"},
      {"offload_keep", "#7981", "gate_ga", "gate_id_or_not_boundary"},
      {"bf16_st0_zero_grad", "#7839", "skipped", "done"},
      {"bf16_reduced_buffer", "#5170", "param_grad", "accumulator"},
      {"bf16_master_gradient", "#6485", "at_initialisation", "at_step"},
      {"bf16_hook_leaves", "#5328", "gradient", "zeros"},
      {"bf16_hook_leaves", "#6508", "zeros", "gradient"},
      {"bf16_zero_acc_default", "#2512", "model", "fp32"},
      {"bf16_zero_acc_default", "#2566", "fp32", "model"},
      {"stage1_attr_bucket", "#4084", "param_grad", "grad_accum"},
      {"stage12_bucket_payload", "#5268", "whole_buffer", "filled"},
      {"stage12_extra_large_key", "#6993", "communication_dtype", "model_dtype"},
      {"stage12_extra_large_key", "#7660", "model_dtype", "communication_dtype"},
      {"stage3_predivide_multiplies", "#3630", "always", "unless_one"},
      {"stage3_reduced_dtype", "#8056", "model", "acc"},
      {"scale_growth", "#6976", "after_a_window", "one_step_later"},
      {"stage3_bucket_start", "#6993", "beginning", "behind_the_last"},
      {"stage3_bucket_start", "#7418", "behind_the_last", "beginning"},
      {"pipeline_scale", "#6675", "once", "nowhere"},
      {"pipeline_scale", "#7665", "nowhere", "each_stage"},
      {"pipeline_scale", "#8154", "each_stage", "once"},
      {"pipeline_backward", "#7665", "served", "taken_for_direct"},
      {"pipeline_backward", "#7787", "taken_for_direct", "served"},
      {"pin_memory_default", "#8207", "off", "on"},
      {"stage3_master_copy", "#8207", "waited_for", "follows_pin_memory"},
  };
  for (const auto& [name, change, before, after] : moves) {
    EXPECT_EQ(value_at("before " + std::string(change), name), before) << name << " before " << change;
    EXPECT_EQ(value_at(change, name), after) << name << " at " << change;
  }
}

TEST(behaviours, a_change_moves_nothing_that_it_does_not_name) {
  std::map<std::string, std::set<std::string>> named;  // change -> switches
  for (const SwitchInfo& info : switches())
    for (const SwitchInfo::Value& value : info.values) named[std::string(value.since)].insert(std::string(info.name));
  for (const ChangeInfo& change : changes()) {
    for (const SwitchInfo& info : switches()) {
      const bool moves = value_at("before " + std::string(change.name), info.name.data()) != value_at(std::string(change.name), info.name.data());
      EXPECT_EQ(moves, named[std::string(change.name)].contains(std::string(info.name))) << change.name << " " << info.name;
    }
  }
}

TEST(behaviours, releases_hold_what_their_packages_hold) {
  EXPECT_EQ(value_at("0.17.5", "stage12_accumulator"), "averaged_gradients");
  EXPECT_EQ(value_at("0.17.6", "stage12_accumulator"), "split_tests_AV");
  EXPECT_EQ(value_at("0.18.2", "stage12_accumulator"), "split_tests_AV");
  EXPECT_EQ(value_at("0.18.3", "stage12_accumulator"), "split_tests_L");
  EXPECT_EQ(value_at("0.18.4", "stage3_id_increment"), "epilogue");
  EXPECT_EQ(value_at("0.18.5", "stage3_id_increment"), "forward");
  EXPECT_EQ(value_at("0.18.5", "bf16_st0_zero_grad"), "skipped");
  EXPECT_EQ(value_at("0.18.6", "bf16_st0_zero_grad"), "done");
  EXPECT_EQ(value_at("0.18.9", "offload_keep"), "add_else_store");
  EXPECT_EQ(value_at("0.19.0", "offload_keep"), "gate_id_or_not_boundary");
  EXPECT_EQ(value_at("0.18.9", "order_bf16_epilogue"), "reduce_then_accumulate");
  EXPECT_EQ(value_at("0.19.0", "order_bf16_epilogue"), "accumulate_then_reduce");
  EXPECT_EQ(value_at("0.19.6", "allreduce_op_sum"), "honoured");
}

TEST(history, changes_stand_at_their_own_numbers_and_releases_in_order) {
  for (std::size_t i = 0; i < changes().size(); ++i) EXPECT_EQ(static_cast<std::size_t>(changes()[i].change), i) << changes()[i].name;
  for (std::size_t i = 1; i < releases().size(); ++i) EXPECT_LT(releases()[i - 1].newest, releases()[i].newest) << releases()[i].first;
  EXPECT_EQ(static_cast<std::size_t>(releases().back().newest) + 1, changes().size());
}

// Each first release was read off the package: its code has what the change brought, the release before has not.
TEST(history, a_release_contains_a_change_and_the_release_before_it_does_not) {
  const std::vector<std::tuple<Change, const char*, const char*>> firsts{
      {Change::pr7171, "0.16.5", "0.16.6"}, {Change::pr7302, "0.16.9", "0.17.0"}, {Change::pr6976, "0.17.0", "0.17.1"}, {Change::pr6993, "0.17.1", "0.17.2"},
      {Change::pr7418, "0.17.2", "0.17.3"}, {Change::pr7371, "0.17.4", "0.17.5"}, {Change::pr7534, "0.17.5", "0.17.6"}, {Change::pr7580, "0.17.6", "0.18.0"}, {Change::pr7645, "0.18.1", "0.18.2"},
      {Change::pr7724, "0.18.3", "0.18.4"}, {Change::pr7787, "0.18.4", "0.18.5"}, {Change::pr7805, "0.18.4", "0.18.5"}, {Change::pr7898, "0.18.7", "0.18.8"}, {Change::pr7965, "0.18.9", "0.19.0"},
      {Change::pr7992, "0.19.0", "0.19.1"}, {Change::pr8056, "0.19.1", "0.19.2"}, {Change::pr8154, "0.19.2", "0.19.3"}, {Change::pr8217, "0.19.3", "0.19.4"},
      {Change::pr8207, "0.19.4", "0.19.5"}, {Change::pr8225, "0.19.4", "0.19.5"}, {Change::pr8280, "0.19.5", "0.19.6"}};
  for (const auto& [change, before, first] : firsts) {
    EXPECT_EQ(first_release(change), first);
    EXPECT_FALSE(point_named(before, "")->contains(change)) << before;
    EXPECT_TRUE(point_named(first, "")->contains(change)) << first;
  }
  EXPECT_EQ(first_release(Change::pr6550), "before 0.16.0");
  EXPECT_TRUE(point_named("0.16.0", "")->contains(Change::pr6675));
}

TEST(behaviours, gradient_clipping_defaults_to_one_since_8068) {
  Scenario scenario;
  scenario.engine.as_of.base = "0.19.2";
  EXPECT_EQ(scenario.gradient_clipping(), 0.0);
  scenario.engine.as_of.base = "0.19.3";
  EXPECT_EQ(scenario.gradient_clipping(), 1.0);
  scenario.engine.config.gradient_clipping = 0.5;
  EXPECT_EQ(scenario.gradient_clipping(), 0.5);
}

TEST(behaviours, a_switch_overrides_its_base) {
  const auto behaviour = resolve_behaviour(AsOf{"head", {{"offload_keep", "add_else_store"}}});
  ASSERT_TRUE(behaviour.ok());
  EXPECT_EQ(switch_value(*behaviour, "offload_keep"), "add_else_store");
  EXPECT_EQ(switch_value(*behaviour, "stage12_accumulator"), "split_tests_L");
}

TEST(behaviours, unknown_names_are_errors_that_say_what_is_known) {
  for (const AsOf& as_of : {AsOf{"0.99.0", {}}, AsOf{"#1", {}}, AsOf{"before 0.18.9", {}}, AsOf{"0.18", {}}, AsOf{"", {}}}) {
    const auto behaviour = resolve_behaviour(as_of);
    ASSERT_FALSE(behaviour.ok()) << as_of.base;
    EXPECT_NE(behaviour.error().message.find("0.19.8"), std::string::npos);
  }
  const auto unknown_switch = resolve_behaviour(AsOf{"head", {{"no_such", "x"}}});
  ASSERT_FALSE(unknown_switch.ok());
  EXPECT_EQ(unknown_switch.error().where, "/engine/as_of/no_such");
  EXPECT_NE(unknown_switch.error().message.find("offload_keep"), std::string::npos);
  const auto unknown_value = resolve_behaviour(AsOf{"head", {{"offload_keep", "x"}}});
  ASSERT_FALSE(unknown_value.ok());
  EXPECT_NE(unknown_value.error().message.find("gate_ga"), std::string::npos);
}

}  // namespace
}  // namespace gradledger::testing
