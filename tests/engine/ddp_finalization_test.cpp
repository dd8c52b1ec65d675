// Backwards of DistributedDataParallel that the loop ends: require_manual_backward_finalization and finalize_backward, as PyTorch 2.15 has them.
#include <gtest/gtest.h>

#include <initializer_list>
#include <string>
#include <vector>

#include "sim/frameworks/torch/ddp/calls.h"
#include "sim/frameworks/torch/ddp/framework.h"
#include "tests/engine/sharded_run.h"
#include "tests/support/loops.h"

namespace gradledger::torch::data_parallel {
namespace {

using nlohmann::json;
using testing::ShardedRun;

constexpr const char *required = R"({"event": {"name": "require_manual_backward_finalization", "value": true}})",
                     *not_required = R"({"event": {"name": "require_manual_backward_finalization", "value": false}})", *finalize = R"({"event": {"name": "finalize_backward"}})",
                     *backward = R"({"backward": {}})", *unreduced = R"({"no_sync": [{"backward": {}}]})", *of_one = R"({"backward": {"uses": ["w0"]}})",
                     *forward = R"({"forward": {}})", *of_forward = R"({"backward": {"of": 0}})", *step = R"({"step": {}})";

json document_of(std::initializer_list<const char*> script, const char* config = "{}") {
  std::string events;
  for (const char* event : script) events += (events.empty() ? "[" : ", ") + std::string(event);
  json out = testing::loop_around("ddp", events + "]", config);
  out["engine"]["as_of"] = "2.15.0";
  out["after_error"] = "go_on";
  return out;
}

ShardedRun run(std::initializer_list<const char*> script, const char* config = "{}") {
  Scenario s = parse_whole_scenario(document_of(script, config).dump(), ".").value();
  s.gradients.kind = GradientKind::normal;
  EXPECT_TRUE(ddp()->select(s).ok());
  return testing::sharded_run(s, ddp()->contract(s).value(), ddp()->factory(s), [](const CollectiveCall& c) { return name_of(c.op); });
}

// The event that each error stands at, and what follows "RuntimeError: ", up to as many letters.
std::string error_at(const ShardedRun& seen, std::uint32_t event, std::size_t letters = 60) {
  return seen.errors.contains(event) ? seen.errors.at(event).substr(std::string("RuntimeError: ").size(), letters) : "";
}

constexpr const char* nothing_open = "finalize_backward() called but no gradient reduction require";

TEST(a_backward_of_ddp_that_the_loop_ends, begins_its_reductions_and_leaves_the_rest_to_the_loop) {
  const ShardedRun seen = run({required, backward, finalize, step, backward, finalize});
  EXPECT_EQ(seen.calls.at(1), "sum 19");
  EXPECT_FALSE(seen.calls.contains(2));
  EXPECT_EQ(seen.races, 0u);
  EXPECT_TRUE(seen.errors.empty());
  EXPECT_GT(run({required, backward, step, finalize}, R"({"gradient_as_bucket_view": true})").races, 0u) << "the step reads what is being reduced";
  EXPECT_EQ(run({required, backward, step, finalize}).races, 0u) << "the step reads the rank's own gradient";
}

TEST(a_backward_of_ddp_that_the_loop_ends, is_ended_before_the_next_forward) {
  const ShardedRun seen = run({required, backward, unreduced, finalize, backward, finalize});
  EXPECT_EQ(error_at(seen, 3), "Expected to have finalized the prior backward pass before st") << "in no_sync too";
  EXPECT_EQ(seen.errors.size(), 1u);
  EXPECT_EQ(error_at(run({required, backward, backward}, R"({"static_graph": true})"), 2), "Expected to have finished reduction in the prior iteration b")
      << "the first backward of a static graph marks no parameter";
}

TEST(a_backward_of_ddp_that_the_loop_ends, asks_ranks_which_parameters_were_used) {
  const ShardedRun seen = run({required, of_one, finalize, backward, finalize}, R"({"find_unused_parameters": true})");
  EXPECT_EQ(seen.calls.at(1), "sum 19, sum 2") << "and a map of two parameters";
  EXPECT_TRUE(seen.errors.empty());
}

TEST(finalize_backward_of_ddp, is_the_reduction_to_the_contract_where_the_loop_asked_for_it) {
  const auto reductions = [](std::initializer_list<const char*> script) { return make_timeline(parse_whole_scenario(document_of(script).dump(), ".").value()).value().reductions; };
  using Events = std::vector<std::uint32_t>;
  EXPECT_EQ(reductions({required, backward, finalize, not_required, backward}), (Events{2, 4}));
}

TEST(finalize_backward_of_ddp, is_refused_where_there_is_nothing_to_end) {
  EXPECT_EQ(error_at(run({backward, finalize}), 1), "finalize_backward() called but manual backward finalization ");
  EXPECT_EQ(error_at(run({required, unreduced, finalize}), 4), nothing_open);
  EXPECT_EQ(error_at(run({required, backward, finalize, finalize}), 3), nothing_open);
  EXPECT_EQ(error_at(run({required, of_one, finalize}), 2), "finalize_backward() called before all DDP buckets were ready");
}

TEST(require_manual_backward_finalization, is_set_outside_of_a_forward_and_its_backward) {
  constexpr const char* words = "set_manual_finalization_required cannot be called after forw";
  EXPECT_EQ(error_at(run({required, backward, not_required}), 2), words);
  EXPECT_EQ(error_at(run({forward, required, of_forward}), 1), words);
  EXPECT_TRUE(run({forward, not_required, of_forward}).errors.empty()) << "it says what is so already";
  EXPECT_TRUE(run({required, backward, finalize, not_required, backward, step}).errors.empty());
}

TEST(calls_of_ddp, that_do_not_fit_are_refused_by_their_pointers) {
  const auto read = [](const char* name, const char* arguments) {
    const auto call = call_from_json(method_named(name), json::parse(arguments), "/script/0/event");
    return call ? "" : call.error().where;
  };
  EXPECT_EQ(read("require_manual_backward_finalization", "{}"), "/script/0/event/value");
  EXPECT_EQ(read("require_manual_backward_finalization", R"({"value": 1})"), "/script/0/event/value");
  EXPECT_EQ(read("finalize_backward", R"({"value": true})"), "/script/0/event/value");
  EXPECT_EQ(read("finalize_backward", "{}"), "");
  json document = document_of({required, backward, finalize, step});
  const auto refused = [&] {
    const auto selected = ddp()->select(parse_whole_scenario(document.dump(), ".").value());
    return selected.ok() ? "" : selected.error().where;
  };
  EXPECT_EQ(refused(), "");
  document["engine"]["as_of"] = "2.14.0";
  EXPECT_EQ(refused(), "/script/0/event");
  document["engine"]["as_of"] = "2.15.0";
  document["engine"]["config"]["optimizer_in_backward"] = true;
  document["script"].erase(3);
  EXPECT_EQ(refused(), "/script/0/event");
}

}  // namespace
}  // namespace gradledger::torch::data_parallel
