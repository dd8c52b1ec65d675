#include "sim/frameworks/deepspeed/behaviour.h"

#include <gtest/gtest.h>

#include <array>
#include <map>
#include <set>
#include <tuple>

#include "sim/frameworks/deepspeed/history.h"
#include "sim/frameworks/deepspeed/settings.h"

namespace gradledger::testing {
namespace {

std::string value_at(const std::string& as_of, const char* name) {
  const auto behaviour = resolve_behaviour(AsOf{as_of, {}});
  EXPECT_TRUE(behaviour.ok()) << as_of;
  return std::string(switch_value(*behaviour, name));
}

// By the table of switches itself: what is held is that points in history are resolved as it says. Scenarios hold what each move does.
TEST(behaviours, each_change_moves_its_switch) {
  std::size_t moves = 0;
  for (const SwitchInfo& s : switches()) {
    const std::string name(s.name);
    for (const SwitchInfo::Value& value : s.values) {
      if (!value.since.starts_with("#")) continue;
      ++moves;
      EXPECT_EQ(value_at(std::string(value.since), name.c_str()), value.name) << name << " at " << value.since;
      EXPECT_NE(value_at("before " + std::string(value.since), name.c_str()), value.name) << name << " before " << value.since;
    }
  }
  EXPECT_GT(moves, changes().size() / 2);
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
      {Change::pr7018, "0.16.4", "0.16.5"}, {Change::pr7330, "0.17.0", "0.17.1"}, {Change::pr7586, "0.17.6", "0.18.0"}, {Change::pr7786, "0.18.4", "0.18.5"},
      {Change::pr7171, "0.16.5", "0.16.6"}, {Change::pr7302, "0.16.9", "0.17.0"}, {Change::pr6976, "0.17.0", "0.17.1"}, {Change::pr6993, "0.17.1", "0.17.2"},
      {Change::pr7418, "0.17.2", "0.17.3"}, {Change::pr7371, "0.17.4", "0.17.5"}, {Change::pr7534, "0.17.5", "0.17.6"}, {Change::pr7580, "0.17.6", "0.18.0"},
      {Change::pr7645, "0.18.1", "0.18.2"}, {Change::pr7724, "0.18.3", "0.18.4"}, {Change::pr7787, "0.18.4", "0.18.5"}, {Change::pr7805, "0.18.4", "0.18.5"},
      {Change::pr7898, "0.18.7", "0.18.8"}, {Change::pr7965, "0.18.9", "0.19.0"}, {Change::pr7992, "0.19.0", "0.19.1"}, {Change::pr8056, "0.19.1", "0.19.2"},
      {Change::pr8154, "0.19.2", "0.19.3"}, {Change::pr8217, "0.19.3", "0.19.4"}, {Change::pr8207, "0.19.4", "0.19.5"}, {Change::pr8225, "0.19.4", "0.19.5"},
      {Change::pr8280, "0.19.5", "0.19.6"}};
  for (const auto& [change, before, first] : firsts) {
    EXPECT_EQ(first_release(change), first);
    EXPECT_FALSE(point_named(before, "")->contains(change)) << before;
    EXPECT_TRUE(point_named(first, "")->contains(change)) << first;
  }
  EXPECT_EQ(first_release(Change::pr6550), "before 0.16.0");
  EXPECT_TRUE(point_named("0.16.0", "")->contains(Change::pr6675));
}

TEST(history, a_release_that_is_not_known_is_taken_as_the_one_before_it) {
  const std::vector<std::tuple<const char*, const char*, const char*>> table{
      {"0.20.1", "0.19.8", "0.20.1 is newer than every release that is known; taken as the newest of them, 0.19.8"},
      {"1.0.0", "0.19.8", "taken as the newest of them, 0.19.8"},
      {"0.19.9.post1", "0.19.8", "taken as the newest of them, 0.19.8"},
      {"0.19.8.1", "0.19.8", "0.19.8.1 is no release that is known; taken as 0.19.8. Say a change that it took over alone as 0.19.8.1+#NUMBER"},
      {"0.18.9.1", "0.18.9", "taken as 0.18.9. Say"},
      {"0.18.10", "0.18.9", "taken as 0.18.9"},
      {"0.16.9.post1", "0.16.9", "taken as one of 0.16.6 to 0.16.9"},
      {"0.16.2.post3", "0.16.2", "taken as one of 0.16.0 to 0.16.4"}};
  for (const auto& [written, taken_as, note] : table) {
    ASSERT_TRUE(point_named(written, "").ok()) << written;
    EXPECT_EQ(*point_named(written, ""), *point_named(taken_as, "")) << written;
    ASSERT_TRUE(point_note(written)) << written;
    EXPECT_NE(point_note(written)->find(note), std::string::npos) << *point_note(written);
  }
  EXPECT_EQ(*point_named("0.20.1", ""), head());
  for (const char* quiet : {"0.19.8", "0.18.9", "0.18.9.0", "head", "#7981", "before #7981", "0.15.9", "0.18", "tomorrow", ""}) EXPECT_FALSE(point_note(quiet)) << quiet;
}

TEST(history, a_branch_has_changes_beside_its_release_or_lacks_some) {
  const PointInHistory branch = *point_named("0.18.9+#7981", "");
  EXPECT_TRUE(branch.contains(Change::pr7981));
  EXPECT_FALSE(branch.contains(Change::pr7967)) << "merged before it, and not taken over";
  EXPECT_EQ(branch.without(Change::pr7981), *point_named("0.18.9", ""));
  EXPECT_EQ(*point_named("0.18.9+DeepSpeed#7981", ""), branch);
  EXPECT_EQ(*point_named("0.18.9.1+#7981", ""), branch);
  EXPECT_EQ(point_note("0.18.9.1+#7981"), "0.18.9.1 is no release that is known; taken as 0.18.9");
  EXPECT_EQ(*point_named("DeepSpeed#7981", ""), *point_named("#7981", ""));
  EXPECT_EQ(*point_named("before #7981+#7981", ""), *point_named("#7981", ""));
  EXPECT_EQ(*point_named("0.19.0-#7985+#7992", ""), point_named("0.19.0", "")->without(Change::pr7985).with(Change::pr7992));
  EXPECT_TRUE(head().contains_all_of(branch));
  EXPECT_FALSE(branch.contains_all_of(head()));
  EXPECT_EQ(value_at("0.18.9", "offload_keep"), "add_else_store");
  EXPECT_EQ(value_at("0.18.9+#7981", "offload_keep"), "gate_id_or_not_boundary");
  EXPECT_EQ(value_at("0.18.9+#7981", "order_bf16_epilogue"), value_at("0.18.9", "order_bf16_epilogue"));
  EXPECT_EQ(value_at("head-#8245", "scale_site"), "output_hook");
}

TEST(history, a_row_of_releases_may_hold_changes_that_its_branch_took_over_alone) {
  constexpr std::array picked{Change::pr7981};
  const ReleaseInfo row{"0.18.9.1", "0.18.9.1", Change::pr7919, picked};
  EXPECT_EQ(point_of(row), *point_named("0.18.9+#7981", ""));
  for (const ReleaseInfo& release : releases()) EXPECT_EQ(point_of(release), *point_named(release.last, "")) << release.last;
}

TEST(history, a_branch_that_is_no_such_thing_is_told_why) {
  const auto said = [](const char* as_of) { return point_named(as_of, "/engine/as_of").error().message; };
  EXPECT_NE(said("0.18.9+#1").find("unknown change \"#1\" in \"0.18.9+#1\"; expected after + or - one that gradledger list changes shows"), std::string::npos) << said("0.18.9+#1");
  EXPECT_NE(said("0.18.9+").find("unknown change \"\""), std::string::npos);
  EXPECT_NE(said("0.18.9+cu118").find("unknown change \"cu118\""), std::string::npos);
  EXPECT_EQ(said("0.19.0+#7981"), "\"0.19.0\" contains #7981 already; expected a change that it lacks");
  EXPECT_EQ(said("0.18.9-#7981"), "\"0.18.9\" does not contain #7981; expected a change that it contains");
  EXPECT_EQ(said("0.18.9+#7981+#7981"), "\"0.18.9+#7981\" contains #7981 already; expected a change that it lacks");
  EXPECT_NE(said("0.15.9+#7981").find("unknown release or change \"0.15.9\""), std::string::npos);
}

TEST(behaviours, gradient_clipping_defaults_to_one_since_8068) {
  Scenario scenario;
  scenario.engine.as_of.base = "0.19.2";
  EXPECT_EQ(gradient_clipping_of(scenario), 0.0);
  scenario.engine.as_of.base = "0.19.3";
  EXPECT_EQ(gradient_clipping_of(scenario), 1.0);
  deepspeed_config(scenario).gradient_clipping = 0.5;
  EXPECT_EQ(gradient_clipping_of(scenario), 0.5);
}

TEST(behaviours, a_switch_overrides_its_base) {
  const auto behaviour = resolve_behaviour(AsOf{"head", {{"offload_keep", "add_else_store"}}});
  ASSERT_TRUE(behaviour.ok());
  EXPECT_EQ(switch_value(*behaviour, "offload_keep"), "add_else_store");
  EXPECT_EQ(switch_value(*behaviour, "stage12_accumulator"), "split_tests_L");
}

TEST(behaviours, unknown_names_are_errors_that_say_what_is_known) {
  for (const AsOf& as_of : {AsOf{"0.99", {}}, AsOf{"#1", {}}, AsOf{"before 0.18.9", {}}, AsOf{"0.18", {}}, AsOf{"", {}}}) {
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
