// The script unrolled: events in order, windows, micro-batches, and what the user's contract says of each.
#include "sim/load.h"

#include <gtest/gtest.h>

#include "tests/scenario/documents.h"

namespace gradledger {
namespace {

using testing::json;

// A world of two ranks, gradient_accumulation_steps 2, and a script.
Scenario scenario_of(const std::string& script, const json& more = json::object()) {
  json document = testing::small_document();
  document["script"] = json::parse(script);
  document.merge_patch(more);
  auto scenario = testing::read(document);
  if (!scenario) ADD_FAILURE() << scenario.error().text();
  return scenario ? *scenario : Scenario{};
}

Timeline timeline_of(const std::string& script, const json& more = json::object()) {
  auto timeline = make_timeline(scenario_of(script, more));
  if (!timeline) ADD_FAILURE() << timeline.error().text();
  return timeline ? *timeline : Timeline{};
}

std::string kinds(const Timeline& timeline) {
  std::string out;
  for (const Event& e : timeline.events) out += (out.empty() ? "" : ", ") + std::string(name_of(e.kind()));
  return out;
}

using Numbers = std::vector<std::uint32_t>;

Numbers windows(const Timeline& timeline) {
  Numbers out;
  for (const Event& e : timeline.events) out.push_back(e.step);
  return out;
}

Numbers updating_events(const Timeline& timeline) {
  Numbers out;
  for (std::uint32_t e = 0; e < timeline.events.size(); ++e)
    if (timeline.events[e].updates()) out.push_back(e);
  return out;
}

// The number within its window of each backward's micro-batch on a rank.
Numbers micro_batches(const Timeline& timeline, std::uint32_t rank) {
  Numbers out;
  for (const Backward& b : timeline.backwards) out.push_back(b.micro_batch[rank]);
  return out;
}

const json every_backward_a_boundary = {{"engine", {{"config", {{"gradient_accumulation_steps", 1}}}}}};

TEST(timeline, unrolls_repetitions_and_micro_batches_in_order) {
  const Timeline t =
      timeline_of(R"([{"repeat": {"times": 2, "of": [{"repeat": {"times": 2, "of": [{"set_boundary": false}]}}, {"backward": {"micro_batches": 2}}, {"step": {}}]}}])");
  EXPECT_EQ(kinds(t), "set_boundary, set_boundary, backward, backward, step, set_boundary, set_boundary, backward, backward, step");
  EXPECT_EQ(t.pointers[t.events[1].item], "/script/0/repeat/of/0/repeat/of/0");
  EXPECT_EQ(t.pointers[t.events[7].item], "/script/0/repeat/of/1");
  EXPECT_EQ(t.pointers[t.events[9].item], "/script/0/repeat/of/2");
  ASSERT_EQ(t.backwards.size(), 4u);
  EXPECT_EQ(t.backwards[2].event, 7u);
  EXPECT_EQ(t.events[7].as<events::Backward>()->ordinal, 2u);
}

TEST(timeline, closes_a_window_where_the_counter_of_steps_says_so) {
  const Timeline t = timeline_of(R"([{"repeat": {"times": 5, "of": [{"backward": {}}, {"step": {}}]}}])");
  EXPECT_EQ(updating_events(t), (Numbers{3, 7}));
  EXPECT_EQ(windows(t), (Numbers{0, 0, 0, 0, 1, 1, 1, 1, 2, 2}));
  EXPECT_EQ(t.steps, 3u);
  EXPECT_TRUE(t.open_window);
  EXPECT_EQ(micro_batches(t, 0), (Numbers{0, 1, 0, 1, 0}));
  EXPECT_EQ(t.micro_batches, (std::vector<Numbers>{{2, 2}, {2, 2}, {1, 1}}));
}

TEST(timeline, closes_a_window_where_the_override_says_so_for_as_long_as_it_stands) {
  const Timeline t = timeline_of(R"([{"set_boundary": true}, {"backward": {}}, {"step": {}}, {"backward": {}}, {"step": {}},
                                     {"set_boundary": false}, {"backward": {}}, {"step": {}}, {"backward": {}}, {"step": {}}])");
  EXPECT_EQ(updating_events(t), (Numbers{2, 4}));
  EXPECT_EQ(micro_batches(t, 1), (Numbers{0, 0, 0, 1}));
  EXPECT_EQ(t.steps, 3u);
  EXPECT_TRUE(t.open_window);
}

TEST(timeline, takes_every_step_call_for_an_update_where_the_contract_demands_it) {
  const std::string script = R"([{"set_boundary": false}, {"backward": {}}, {"step": {}}, {"backward": {}}, {"step": {}}])";
  EXPECT_EQ(updating_events(timeline_of(script)), Numbers{});
  EXPECT_EQ(updating_events(timeline_of(script, {{"contract", {{"window", "every_step_call"}}}})), (Numbers{2, 4}));
}

TEST(timeline, without_events_after_the_last_update_has_no_open_window) {
  const Timeline closed = timeline_of(R"([{"backward": {}}, {"step": {}}])", every_backward_a_boundary);
  EXPECT_EQ(closed.steps, 1u);
  EXPECT_FALSE(closed.open_window);
  const Timeline idle = timeline_of(R"([{"backward": {}}, {"step": {}}, {"zero_grad": "engine"}])", every_backward_a_boundary);
  EXPECT_EQ(idle.steps, 2u);
  EXPECT_FALSE(idle.open_window);
  const Timeline open = timeline_of(R"([{"backward": {}}, {"step": {}}, {"backward": {}}])", every_backward_a_boundary);
  EXPECT_EQ(open.steps, 2u);
  EXPECT_TRUE(open.open_window);
}

TEST(timeline, counts_an_update_without_backwards_as_a_window_of_its_own) {
  const Timeline t = timeline_of(R"([{"step": {}}, {"step": {}}])", every_backward_a_boundary);
  EXPECT_EQ(updating_events(t), (Numbers{0, 1}));
  EXPECT_EQ(t.steps, 2u);
  EXPECT_EQ(t.micro_batches, (std::vector<Numbers>{{0, 0}, {0, 0}}));
}

TEST(timeline, tells_documented_boundaries_from_other_backwards) {
  const Timeline t =
      timeline_of(R"([{"backward": {}}, {"step": {}}, {"backward": {}}, {"step": {}}, {"set_boundary": true}, {"backward": {}}, {"set_boundary": false}, {"backward": {}}])");
  std::vector<bool> boundaries;
  for (const Backward& b : t.backwards) boundaries.push_back(b.boundary);
  EXPECT_EQ(boundaries, (std::vector<bool>{false, true, true, false}));
}

TEST(timeline, numbers_micro_batches_on_each_rank_alone) {
  const Timeline t = timeline_of(R"([{"backward": {"ranks": [1]}}, {"backward": {}}, {"backward": {"ranks": [0], "micro_batches": 2}}])");
  EXPECT_EQ(micro_batches(t, 0), (Numbers{no_contribution, 0, 1, 2}));
  EXPECT_EQ(micro_batches(t, 1), (Numbers{0, 1, no_contribution, no_contribution}));
  EXPECT_EQ(t.micro_batches.front(), (Numbers{3, 2}));
  EXPECT_TRUE(t.events[0].runs_on(1));
  EXPECT_FALSE(t.events[0].runs_on(0));
  EXPECT_TRUE(t.events[1].runs_on(0));
  EXPECT_EQ(t.contribution(0, 1), (Contribution{0, 1, 0}));
  EXPECT_EQ(t.describe(3), "event 3: backward of micro-batch 2");
}

TEST(timeline, keeps_an_override_to_the_ranks_that_made_it) {
  const Timeline t = timeline_of(R"([{"set_boundary": {"value": true, "ranks": [0]}}, {"backward": {}}, {"step": {"ranks": [1]}}, {"step": {"ranks": [0]}}])");
  EXPECT_EQ(updating_events(t), (Numbers{3}));
}

TEST(timeline, with_all_ranks_named_is_the_one_without_names) {
  const Timeline t = timeline_of(R"([{"backward": {"ranks": [1, 0]}}])");
  EXPECT_EQ(t.events[0].ranks, Numbers{});
}

TEST(timeline, brackets_a_block_without_synchronisation) {
  const Timeline t = timeline_of(R"([{"no_sync": [{"backward": {}}, {"no_sync": []}, {"backward": {}}]}, {"backward": {}}])");
  EXPECT_EQ(kinds(t), "no_sync enter, backward, no_sync enter, no_sync exit, backward, no_sync exit, backward");
  EXPECT_EQ(t.pointers[t.events[0].item], "/script/0");
  EXPECT_EQ(t.pointers[t.events[1].item], "/script/0/no_sync/0");
  EXPECT_EQ(t.pointers[t.events[5].item], "/script/0");
}

TEST(timeline, expects_a_reduction_at_a_boundary_outside_of_blocks_and_at_the_end_of_a_coalesced_one) {
  const Timeline t =
      timeline_of(R"([{"no_sync": [{"backward": {}}]}, {"coalesce": [{"backward": {"micro_batches": 2}}]}, {"backward": {}}, {"coalesce": []}])", every_backward_a_boundary);
  EXPECT_EQ(kinds(t), "no_sync enter, backward, no_sync exit, coalesce enter, backward, backward, coalesce exit, backward, coalesce enter, coalesce exit");
  EXPECT_EQ(t.boundaries, (Numbers{6, 7}));
  EXPECT_EQ(t.reductions, t.boundaries);
  EXPECT_EQ(t.reduction_before(6, 0), never);
  EXPECT_EQ(t.reduction_before(8, 0), 7u);
  EXPECT_TRUE(t.waits_for_reduction(1));
  EXPECT_FALSE(t.waits_for_reduction(6)) << "the block's end takes all with it";
}

TEST(timeline, of_partitioned_gradients_has_a_reduction_after_every_backward_outside_of_blocks) {
  const Timeline t = timeline_of(R"([{"backward": {"micro_batches": 2}}, {"coalesce": [{"backward": {}}]}, {"step": {}}, {"backward": {}}])",
                                 {{"engine", {{"config", {{"gradient_accumulation_steps", 4}, {"zero_optimization", {{"stage", 2}}}}}}}});
  EXPECT_EQ(kinds(t), "backward, backward, coalesce enter, backward, coalesce exit, step, backward");
  EXPECT_EQ(t.reductions, (Numbers{0, 1, 4, 6}));
  EXPECT_EQ(t.boundaries, (Numbers{4}));
  EXPECT_TRUE(t.waits_for_reduction(3));
  EXPECT_EQ(t.reduction_before(3, 0), 1u);
}

TEST(timeline, of_a_block_that_one_rank_enters_runs_its_events_everywhere_and_has_ranks_disagree) {
  const Timeline t = timeline_of(R"([{"no_sync": {"ranks": [1], "of": [{"backward": {}}, {"no_sync": [{"backward": {}}]}]}}, {"backward": {}}, {"step": {}}, {"backward": {}}])",
                                 every_backward_a_boundary);
  EXPECT_EQ(kinds(t), "no_sync enter, backward, no_sync enter, backward, no_sync exit, no_sync exit, backward, step, backward");
  EXPECT_FALSE(t.events[0].runs_on(0));
  EXPECT_TRUE(t.events[0].runs_on(1));
  EXPECT_TRUE(t.events[1].runs_on(0));
  EXPECT_EQ(t.pointers[t.events[1].item], "/script/0/no_sync/of/0");
  EXPECT_EQ(t.pointers[t.events[3].item], "/script/0/no_sync/of/1/no_sync/0");
  EXPECT_EQ(t.apart, (Numbers{1})) << "both are in the inner block";
  EXPECT_EQ(t.reductions, (Numbers{6, 8}));
  EXPECT_FALSE(t.apart_at(0, true));
  EXPECT_TRUE(t.apart_at(1, true));
  EXPECT_TRUE(t.apart_at(6, true)) << "for the rest of the window";
  EXPECT_FALSE(t.apart_at(8, true));
}

// Two replicas of one shard each, and what a script makes of their switches.
Timeline timeline_of_switches(const std::string& script) {
  return timeline_of(script, json::parse(R"({"model_dtype": "fp32", "groups": {"replicate": [[0, 1]], "shard": [[0], [1]]},
                                             "engine": {"framework": "fsdp2", "config": {"gradient_accumulation_steps": null, "zero_optimization": null,
                                                                                         "mesh": ["replicate", "shard"]}}})"));
}

TEST(timeline, follows_switches_that_set_what_others_read) {
  const std::string off = R"({"event": {"name": "set_requires_gradient_sync", "value": false}},)", on = R"({"event": {"name": "set_requires_gradient_sync", "value": true}},)";
  const std::string within = R"({"event": {"name": "set_requires_all_reduce", "value": false}},)", between = R"({"event": {"name": "set_requires_all_reduce", "value": true}},)";
  const std::string backward = R"({"backward": {}},)", last = R"({"backward": {}}])", block = R"({"no_sync": [)";
  const Timeline set_by_the_other = timeline_of_switches("[" + within + backward + on + last);
  EXPECT_EQ(set_by_the_other.partial, (Numbers{1}));
  EXPECT_EQ(set_by_the_other.reductions, (Numbers{3}));
  const Timeline not_enough = timeline_of_switches("[" + off + between + last);
  EXPECT_TRUE(not_enough.partial.empty());
  EXPECT_TRUE(not_enough.reductions.empty());
  const Timeline inside = timeline_of_switches("[" + off + block + on + last + "}," + last);
  EXPECT_EQ(inside.reductions, (Numbers{3, 5})) << "inside of the block the switch is on, and its end leaves it on";
  const Timeline behind = timeline_of_switches("[" + block + last + "}," + within + off + on + within + last);
  EXPECT_EQ(behind.partial, (Numbers{7}));
  EXPECT_EQ(behind.taken_before(8, 0), 7u);
}

TEST(timeline, of_a_switch_on_one_rank_has_ranks_disagree) {
  const Timeline t = timeline_of_switches(R"([{"event": {"name": "set_requires_all_reduce", "value": false, "ranks": [0]}}, {"backward": {}},
    {"event": {"name": "set_requires_all_reduce", "value": false, "ranks": [1]}}, {"backward": {}}])");
  EXPECT_EQ(t.apart, (Numbers{1}));
  EXPECT_EQ(t.partial, (Numbers{3}));
}

TEST(timeline, leaves_out_what_follows_an_exception_in_its_blocks) {
  const Timeline t = timeline_of(R"([{"coalesce": [{"backward": {}}, {"raise": {"ranks": [1], "caught": true}}, {"backward": {}}]}, {"backward": {}}])");
  EXPECT_EQ(kinds(t), "coalesce enter, backward, raise, backward, coalesce exit, backward");
  EXPECT_EQ(micro_batches(t, 0), (Numbers{0, 1, 2}));
  EXPECT_EQ(micro_batches(t, 1), (Numbers{0, no_contribution, 1}));
  EXPECT_TRUE(t.events[2].as<events::Raise>()->caught);
  EXPECT_FALSE(t.events[4].runs_on(1));  // the exception has left the block already
}

TEST(timeline, after_an_exception_on_every_rank_has_events_that_nobody_runs) {
  const Timeline t = timeline_of(R"([{"coalesce": [{"backward": {}}, {"raise": {}}, {"backward": {}}]}, {"backward": {}}])");
  EXPECT_FALSE(t.events[3].runs_on(0) || t.events[3].runs_on(1));
  EXPECT_EQ(micro_batches(t, 0), (Numbers{0, no_contribution, 1}));
  EXPECT_EQ(t.boundaries, Numbers{});
  EXPECT_EQ(t.describe(3), "event 3: backward of nobody");
}

TEST(timeline, of_an_unmanaged_engine_has_every_step_for_a_boundary_and_no_backward) {
  const Timeline t = timeline_of(R"([{"backward": {}}, {"step": {}}, {"set_boundary": false}, {"backward": {"micro_batches": 2}}, {"step": {}}])",
                                 {{"engine", {{"config", {{"managed_gradient_accumulation", false}}}}}});
  EXPECT_EQ(updating_events(t), (Numbers{1, 5}));
  for (const Backward& b : t.backwards) EXPECT_FALSE(b.boundary);
}

TEST(timeline, drops_what_the_open_window_has_at_a_zero_grad) {
  for (const char* of : {"engine", "optimizer"}) {
    const Timeline t = timeline_of(R"([{"backward": {"micro_batches": 2}}, {"zero_grad": ")" + std::string(of) + R"("}, {"backward": {}}])");
    EXPECT_EQ(t.dropped_at, (std::vector<Numbers>{{2, 2}, {2, 2}, {never, never}}));
  }
}

TEST(timeline, drops_on_the_ranks_that_call_zero_grad_and_only_what_was_not_dropped_before) {
  const Timeline t =
      timeline_of(R"([{"backward": {}}, {"zero_grad": {"of": "optimizer", "ranks": [1]}}, {"backward": {"ranks": [0]}}, {"backward": {}}, {"zero_grad": "engine"}])");
  EXPECT_EQ(t.dropped_at, (std::vector<Numbers>{{4, 1}, {4, never}, {4, 4}}));
}

TEST(timeline, drops_nothing_of_a_window_that_is_closed) {
  const Timeline t = timeline_of(R"([{"backward": {}}, {"step": {}}, {"zero_grad": "engine"}, {"backward": {}}])", every_backward_a_boundary);
  EXPECT_EQ(t.dropped_at, (std::vector<Numbers>{{never, never}, {never, never}}));
}

TEST(timeline, drops_nothing_where_the_contract_keeps) {
  const Timeline t = timeline_of(R"([{"backward": {}}, {"zero_grad": "engine"}])", {{"contract", {{"zero_grad", "keeps"}}}});
  EXPECT_EQ(t.dropped_at, (std::vector<Numbers>{{never, never}}));
}

TEST(timeline, tells_a_backward_of_an_explicit_forward_from_one_with_its_own) {
  const Timeline t = timeline_of(R"([{"forward": {}}, {"forward": {}}, {"backward": {"of": 1}}, {"backward": {}}])");
  EXPECT_EQ(kinds(t), "forward, forward, backward, backward");
  EXPECT_FALSE(t.events[2].as<events::Backward>()->own_forward);
  EXPECT_EQ(t.events[2].as<events::Backward>()->of, 1u);
  EXPECT_TRUE(t.events[3].as<events::Backward>()->own_forward);
}

TEST(timeline, counts_explicit_forwards_anew_in_each_window) {
  const Timeline t = timeline_of(R"([{"forward": {}}, {"backward": {"of": 0}}, {"step": {}}, {"forward": {}}, {"backward": {"of": 0}}])", every_backward_a_boundary);
  EXPECT_EQ(windows(t), (Numbers{0, 0, 0, 1, 1}));
}

TEST(timeline, says_which_given_micro_batch_a_backward_takes) {
  const Timeline t = timeline_of(R"([{"backward": {"micro_batches": 2}}, {"backward": {"micro_batch": 0}}, {"backward": {"ranks": [0], "micro_batch": 1}}])");
  Numbers data;
  for (const Backward& b : t.backwards) data.push_back(b.data[0]);
  EXPECT_EQ(data, (Numbers{0, 1, 0, 1}));
}

TEST(timeline, knows_which_parameters_a_backward_uses) {
  const json parameters = {{"parameters", {{{"name", "w"}, {"numel", 4}}, {{"name", "v"}, {"numel", 3}, {"used_by", "micro_batch == last"}}}}};
  const std::string script = R"([{"backward": {}}, {"backward": {"uses": ["v"]}}, {"backward": {"ranks": [0]}}, {"backward": {"ranks": [1]}}])";
  const Scenario scenario = scenario_of(script, parameters);
  const Timeline t = timeline_of(script, parameters);
  const auto used = [&](std::uint32_t rank, std::uint32_t parameter) {
    std::vector<bool> out;
    for (std::uint32_t b = 0; b < 4; ++b) out.push_back(t.used(scenario, b, rank, parameter));
    return out;
  };
  EXPECT_EQ(used(0, 0), (std::vector<bool>{true, false, true, false}));
  EXPECT_EQ(used(0, 1), (std::vector<bool>{false, true, true, false}));
  EXPECT_EQ(used(1, 1), (std::vector<bool>{false, true, false, true}));
}

TEST(timeline, knows_in_which_order_gradients_are_ready) {
  const json parameters = {
      {"parameters",
       {{{"name", "w"}, {"numel", 4}}, {{"name", "ice"}, {"numel", 3}, {"trainable", false}}, {{"name", "v"}, {"numel", 4}}, {{"name", "again"}, {"numel", 4}, {"tied_to", "w"}}}}};
  const std::string script = R"([{"backward": {}}, {"backward": {"order": {"1": ["w"]}}}, {"backward": {"uses": ["v"]}}])";
  const Scenario scenario = scenario_of(script, parameters);
  const Timeline t = timeline_of(script, parameters);
  EXPECT_EQ(t.ready_order(scenario, 0, 1), (Numbers{3, 2, 0})) << "a tied parameter comes by at each use, a frozen one never";
  EXPECT_EQ(t.ready_order(scenario, 1, 1), (Numbers{0, 3, 2}));
  EXPECT_EQ(t.ready_order(scenario, 1, 0), (Numbers{3, 2, 0}));
  EXPECT_EQ(t.ready_order(scenario, 2, 0), (Numbers{2}));
  for (std::uint32_t p : {1u, 3u}) EXPECT_FALSE(t.used(scenario, 0, 0, p)) << "neither frozen nor tied parameters have gradients of their own";
}

TEST(timeline, has_gradients_of_a_later_backward_of_a_forward_ready_as_those_of_the_first) {
  const json parameters = {{"parameters", {{{"name", "w"}, {"numel", 4}}, {{"name", "v"}, {"numel", 4}}}}};
  const std::string script =
      R"([{"set_boundary": true}, {"forward": {}}, {"forward": {}}, {"backward": {"of": 0, "order": {"1": ["w"]}}}, {"backward": {"of": 0}}, {"backward": {"of": 1}},
    {"backward": {"of": 0, "order": {"1": ["v"]}}}, {"step": {}}, {"forward": {}}, {"backward": {"of": 0}}])";
  const Scenario scenario = scenario_of(script, parameters);
  const Timeline t = timeline_of(script, parameters);
  const auto on = [&](std::uint32_t rank, std::uint32_t backward) { return t.ready_order(scenario, backward, rank); };
  EXPECT_EQ(on(1, 0), (Numbers{0, 1}));
  EXPECT_EQ(on(1, 1), (Numbers{0, 1})) << "the same graph";
  EXPECT_EQ(on(0, 1), (Numbers{1, 0})) << "another rank has a graph of its own";
  EXPECT_EQ(on(1, 2), (Numbers{1, 0})) << "another forward";
  EXPECT_EQ(on(1, 3), (Numbers{1, 0})) << "the script says so";
  EXPECT_EQ(on(1, 4), (Numbers{1, 0})) << "a forward of the next window";
}

TEST(timeline, describes_its_events) {
  const Timeline t = timeline_of(R"([{"set_boundary": false}, {"backward": {}}, {"zero_grad": "optimizer"}, {"step": {}}, {"set_boundary": true}, {"step": {}}])");
  EXPECT_EQ(t.describe(0), "event 0: set_boundary false");
  EXPECT_EQ(t.describe(1), "event 1: backward of micro-batch 0");
  EXPECT_EQ(t.describe(2), "event 2: optimizer.zero_grad");
  EXPECT_EQ(t.describe(3), "event 3: step (not at a boundary)");
  EXPECT_EQ(t.describe(5), "event 5: step");
  const Timeline counted = timeline_of(R"([{"backward": {}}, {"step": {}}, {"backward": {}}, {"step": {}}])", {{"engine", {{"config", {{"gradient_accumulation_steps", 2}}}}}});
  EXPECT_EQ(counted.describe(1), "event 1: step (call 1 of 2)");
  EXPECT_EQ(counted.describe(3), "event 3: step");
}

}  // namespace
}  // namespace gradledger
