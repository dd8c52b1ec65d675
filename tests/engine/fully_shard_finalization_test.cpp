// Backwards that the loop ends: set_manual_backward_finalization, finalize_backward and what that returns.
#include <gtest/gtest.h>

#include <initializer_list>
#include <string>
#include <vector>

#include "sim/frameworks/torch/fsdp2/framework.h"
#include "tests/engine/sharded_run.h"
#include "tests/support/loops.h"

namespace gradledger::torch::fully_shard::ended_by_the_loop {
namespace {

using nlohmann::json;
using testing::ShardedRun;

constexpr const char *by_hand = R"({"event": {"name": "set_manual_backward_finalization", "value": true}})",
                     *by_itself = R"({"event": {"name": "set_manual_backward_finalization", "value": false}})", *finalize = R"({"event": {"name": "finalize_backward"}})",
                     *begin = R"({"event": {"name": "finalize_backward", "async_op": true}})", *wait = R"({"event": {"name": "wait_for_gradient_reduction"}})",
                     *reset = R"({"event": {"name": "reset_iter_state"}})", *sync_off = R"({"event": {"name": "set_requires_gradient_sync", "value": false}})",
                     *sync_on = R"({"event": {"name": "set_requires_gradient_sync", "value": true}})",
                     *all_reduce_off = R"({"event": {"name": "set_requires_all_reduce", "value": false}})", *backward = R"({"backward": {}})", *step = R"({"step": {}})";

// The root has one parameter and two modules have one each. Two ranks, or on a mesh of two dimensions four.
Scenario scenario_of(std::initializer_list<const char*> script, bool mesh = false) {
  std::string events;
  for (const char* event : script) events += (events.empty() ? "[" : ", ") + std::string(event);
  json document = testing::loop_around("fsdp2", events + "]", R"({"units": [["w1"], ["w2"]]})");
  document["parameters"] = json::parse(R"([{"name": "w0", "numel": 4}, {"name": "w1", "numel": 5}, {"name": "w2", "numel": 6}])");
  document["engine"]["as_of"] = "2.15.0";
  document["after_error"] = "go_on";
  if (mesh) {
    document["world_size"] = 4;
    document["groups"] = json::parse(R"({"shard": [[0, 1], [2, 3]], "replicate": [[0, 2], [1, 3]]})");
    document["engine"]["config"]["mesh"] = {"replicate", "shard"};
  }
  Scenario s = parse_whole_scenario(document.dump(), ".").value();
  s.gradients.kind = GradientKind::normal;
  return s;
}

ShardedRun run(std::initializer_list<const char*> script, bool mesh = false) {
  const Scenario s = scenario_of(script, mesh);
  EXPECT_TRUE(fsdp2()->select(s).ok());
  return testing::sharded_run(s, fsdp2()->contract(s).value(), fsdp2()->factory(s), [](const CollectiveCall& c) { return name_of(c.op); });
}

TEST(a_backward_that_the_loop_ends, leaves_those_modules_to_it_that_no_hook_reduced) {
  const ShardedRun seen = run({by_hand, backward, finalize, step});
  EXPECT_EQ(seen.calls.at(1), "gather 2, gather 3, gather 3, gather 3, gather 3, avg 6, avg 6");
  EXPECT_EQ(seen.calls.at(2), "avg 4") << "of the root, whose input needs no gradient";
  EXPECT_EQ(seen.races, 0u);
}

TEST(backwards_that_the_loop_ends, are_reduced_from_the_last_module_once_for_all_of_them) {
  const ShardedRun seen = run({by_hand, sync_off, backward, backward, sync_on, finalize, step});
  EXPECT_EQ(seen.calls.at(3).find("avg"), std::string::npos);
  EXPECT_EQ(seen.calls.at(5), "avg 6, avg 6, avg 4");
  EXPECT_EQ(seen.races, 0u);
  const ShardedRun off = run({by_hand, sync_off, backward, finalize, sync_on, finalize});
  EXPECT_FALSE(off.calls.contains(3)) << "nothing is reduced while reductions are off";
  EXPECT_EQ(off.calls.at(5), "avg 6, avg 6, avg 4") << "and a second call has it all";
}

TEST(reductions_that_were_begun, race_with_a_step_that_does_not_wait) {
  EXPECT_EQ(run({by_hand, backward, begin, wait, step}).races, 0u);
  EXPECT_GT(run({by_hand, backward, begin, step}).races, 0u);
  EXPECT_GT(run({by_hand, backward, step}).races, 0u);
}

TEST(reductions_that_were_begun, are_waited_for_before_the_next_forward_and_the_next_end) {
  const ShardedRun seen = run({by_hand, backward, begin, backward, finalize, wait, wait, backward, finalize});
  EXPECT_EQ(seen.errors.at(3), "RuntimeError: The previous gradient reduction must be waited on before forward");
  EXPECT_EQ(seen.errors.at(4), "RuntimeError: The previous gradient reduction must be waited on before finalizing backward again");
  EXPECT_EQ(seen.errors.size(), 2u) << "who waits twice waits for nothing";
}

TEST(reductions_that_were_begun, end_with_reset_iter_state) {
  const ShardedRun seen = run({by_hand, backward, begin, reset, wait, backward, finalize});
  EXPECT_EQ(seen.errors.at(4), "RuntimeError: This gradient reduction handle was invalidated");
  EXPECT_EQ(seen.calls.at(6), "avg 4");
}

TEST(finalize_backward, is_a_reduction_to_the_contract_where_gradient_sync_is_on) {
  const auto reductions = [](std::initializer_list<const char*> script) { return make_timeline(scenario_of(script)).value().reductions; };
  using Events = std::vector<std::uint32_t>;
  EXPECT_EQ(reductions({by_hand, sync_off, backward, finalize, sync_on, finalize}), Events{5});
  EXPECT_EQ(reductions({by_hand, backward, finalize}), (Events{1, 2})) << "a hook of some modules, and the loop";
}

TEST(finalize_backward, is_refused_where_it_cannot_end_what_there_is) {
  EXPECT_EQ(run({backward, finalize}).errors.at(1),
            "RuntimeError: FSDP finalize_backward requires manual backward finalization. Call set_manual_backward_finalization(True) before forward");
  EXPECT_EQ(run({by_hand, R"({"backward": {"raises_after": 1}})", finalize}).errors.at(2), "RuntimeError: FSDP finalize_backward must be called after backward completes");
  EXPECT_EQ(run({by_hand, backward, R"({"event": {"name": "finalize_backward", "unit": 0}})"}).errors.at(2),
            "RuntimeError: finalize_backward must be called on the root FSDP module");
  EXPECT_TRUE(run({finalize, begin, wait}).errors.empty()) << "before the first forward there is nothing to end";
}

TEST(finalize_backward, takes_no_sums_that_wait_for_other_replicas) {
  const char* words = "RuntimeError: FSDP manual backward finalization ";
  const ShardedRun partial = run({by_hand, all_reduce_off, backward, finalize}, true);
  EXPECT_EQ(partial.errors.at(3),
            std::string(words) + "does not support partial gradient reductions for parameter group 'units.0'. Use automatic backward finalization for this configuration");
  const ShardedRun pending = run({by_hand, sync_off, backward, sync_on, all_reduce_off, finalize}, true);
  EXPECT_EQ(pending.errors.at(5), std::string(words) + "requires all-reduce for parameter group '<root>'. Call set_requires_all_reduce(True) before finalization");
  EXPECT_EQ(run({by_hand, sync_off, backward, sync_on, finalize}, true).calls.at(4), "avg 6, avg 3, avg 6, avg 3, avg 4, avg 2");
}

TEST(set_manual_backward_finalization, changes_nothing_between_a_backward_and_its_end) {
  const char* words = "RuntimeError: set_manual_backward_finalization cannot change mode after backward starts";
  EXPECT_EQ(run({by_hand, backward, by_itself}).errors.at(2), words);
  EXPECT_TRUE(run({by_hand, backward, finalize, by_itself, backward}).errors.empty());
  EXPECT_EQ(run({R"({"event": {"name": "set_is_last_backward", "value": false}})", backward, by_hand}).errors.at(2), words) << "a backward that is not the last one stays open";
  EXPECT_TRUE(run({by_hand, backward, reset, by_itself}).errors.empty());
}

TEST(set_manual_backward_finalization, is_a_method_of_the_root) {
  const char* words = "RuntimeError: set_manual_backward_finalization must be called on the root FSDP module";
  constexpr const char *unit_by_hand = R"({"event": {"name": "set_manual_backward_finalization", "value": true, "unit": 0}})",
                       *unit_by_itself = R"({"event": {"name": "set_manual_backward_finalization", "value": false, "unit": 0}})";
  EXPECT_EQ(run({backward, unit_by_hand}).errors.at(1), words);
  const ShardedRun before = run({unit_by_hand, backward, unit_by_itself, backward});
  EXPECT_EQ(before.errors.at(1), words) << "which module is the root is known from the first forward on";
  EXPECT_EQ(before.errors.size(), 1u);
}

}  // namespace
}  // namespace gradledger::torch::fully_shard::ended_by_the_loop
