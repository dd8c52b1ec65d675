// DistributedDataParallel and gradients that do not come through the outputs of its forward, or not before an exception: what runs of PyTorch 2.15 did.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "sim/scenario/parse.h"
#include "tests/support/on_weights.h"

namespace gradledger::testing {
namespace {

using nlohmann::json;

// Exceptions of rank 0, and the weights that the last event of all left in param.grad of a parameter.
struct DdpOutcome final : TraceSink {
  void engine_error(const EngineErrorRecord& e) override {
    if (e.rank == 0) errors.push_back(e.message);
  }
  void weights(const WeightObservation& o) override {
    if (o.rank != 0 || !o.at_end || !o.buffer.ends_with(".grad")) return;
    std::size_t& of = terms[std::string(o.buffer)];
    of = 0;
    for (const WeightPiece& piece : o.pieces) of = std::max(of, piece.terms.size());
  }
  void collective(const CollectiveRecord& c) override {
    reductions += c.rank == 0 && c.kind == CollectiveKind::all_reduce;
    sums += c.rank == 0 && c.group != 0 && c.kind == CollectiveKind::all_reduce;
  }

  std::vector<std::string> errors;
  std::map<std::string, std::size_t> terms;
  std::size_t reductions = 0, sums = 0;  // all-reduces; of them those over tensor-parallel ranks alone
};

json ddp_loop(json parameters, json config, json script) {
  return {{"name", "s"},
          {"world_size", 2},
          {"parameters", std::move(parameters)},
          {"model_dtype", "fp32"},
          {"engine", {{"framework", "ddp"}, {"as_of", "2.15.0"}, {"config", std::move(config)}, {"optimizer", {{"type", "SGD"}, {"lr", 1.0}}}}},
          {"script", std::move(script)},
          {"after_error", "go_on"}};
}

DdpOutcome outcome_of(const json& document) {
  DdpOutcome out;
  run_on_weights(document, out);
  return out;
}

const json with_router = {{{"name", "router"}, {"numel", 4}, {"hooked_outputs", 0}}, {{"name", "rest"}, {"numel", 4}}};
const json two_backwards = {{{"backward", json::object()}}, {{"backward", json::object()}}, {{"step", json::object()}}};

TEST(ddp_outputs, a_term_behind_the_forward_is_reduced_like_any_other) {
  for (const json& config : {json::object(), json{{"static_graph", true}}, json{{"gradient_as_bucket_view", true}}}) {
    const DdpOutcome out = outcome_of(ddp_loop(with_router, config, two_backwards));
    EXPECT_EQ(out.errors, std::vector<std::string>{}) << config;
    EXPECT_EQ(out.terms.at("router.grad"), out.terms.at("rest.grad")) << config;
  }
}

TEST(ddp_outputs, a_parameter_that_they_do_not_reach_is_marked_ready_twice_where_unused_ones_are_looked_for) {
  const json looks = {{"find_unused_parameters", true}};
  const DdpOutcome out = outcome_of(ddp_loop(with_router, looks, json::array({{{"backward", json::object()}}})));
  ASSERT_EQ(out.errors.size(), 1u);
  EXPECT_EQ(out.errors.front(), "Expected to mark a variable ready only once. Parameter at index 0 has been marked as ready twice.");
  EXPECT_EQ(outcome_of(ddp_loop(with_router, looks, json::array({{{"no_sync", json::array({two_backwards[0], two_backwards[1]})}}}))).errors, std::vector<std::string>{})
      << "the reducer does not look in no_sync";
  const json inside = {{"find_unused_parameters", true}, {"backward_in_forward", true}};
  EXPECT_EQ(outcome_of(ddp_loop(with_router, inside, two_backwards)).errors, std::vector<std::string>{}) << "a loop that prepares the reducer has the loss at hand";
}

// static_graph sets its first reduction off from what wraps the outputs.
TEST(ddp_outputs, that_no_term_comes_through_begin_no_reduction_of_a_static_graph) {
  const json is_static = {{"static_graph", true}};
  json around = with_router;
  around[1]["hooked_outputs"] = 0;
  EXPECT_EQ(outcome_of(ddp_loop(around, is_static, two_backwards)).reductions, 0u);
  EXPECT_GT(outcome_of(ddp_loop(around, json::object(), two_backwards)).reductions, 0u);
  EXPECT_GT(outcome_of(ddp_loop(with_router, is_static, two_backwards)).reductions, 0u);
}

// DTensors are made of the wrapper's parameters before the forward, so that autograd comes back to these last.
TEST(ddp_outputs, an_exception_keeps_every_gradient_of_a_dtensor_back) {
  json document =
      ddp_loop({{{"name", "a"}, {"numel", 4}, {"summed_over", "tp"}}, {{"name", "b"}, {"numel", 4}}}, {{"plain", {"b"}}}, json::array({{{"backward", {{"raises_after", 2}}}}}));
  document["world_size"] = 4;
  document["layout"] = {{"tp", 2}};
  const DdpOutcome part = outcome_of(document);
  EXPECT_EQ(part.errors.size(), 1u);
  EXPECT_FALSE(part.terms.contains("a.grad"));
  EXPECT_EQ(part.terms.at("b.grad"), 1u);
  document["script"] = {{{"backward", json::object()}}};
  const DdpOutcome whole = outcome_of(document);
  EXPECT_TRUE(whole.terms.contains("a.grad"));
  EXPECT_GT(whole.sums, part.sums) << "nor is it added up over the tensor-parallel ranks";
}

TEST(ddp_outputs, what_the_wrapper_does_not_find_at_dtensors_is_refused) {
  const auto pointer = [](const json& config) {
    json document = ddp_loop({{{"name", "a"}, {"numel", 4}, {"sharded_over", "tp"}}, {{"name", "b"}, {"numel", 4}}}, config, {{{"backward", json::object()}}});
    document["world_size"] = 4;
    document["layout"] = {{"tp", 2}};
    const auto read = read_scenario(document.dump(), ".");
    return read.ok() ? std::string() : read.error().where;
  };
  EXPECT_EQ(pointer({{"optimizer_in_backward", true}}), "/engine/config/optimizer_in_backward");
  EXPECT_EQ(pointer({{"optimizer_in_backward", true}, {"plain", {"a", "b"}}}), "");
  EXPECT_EQ(pointer({{"delay_all_reduce", {{"params", {"a"}}, {"hook", "b"}}}}), "/engine/config/delay_all_reduce/params");
  EXPECT_EQ(pointer({{"delay_all_reduce", {{"params", {"b"}}, {"hook", "a"}}}, {"plain", {"b"}}}), "");
}

}  // namespace
}  // namespace gradledger::testing
