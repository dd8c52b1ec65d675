// Where the ranks of a layout lie: groups by hand and by counting, layouts that do not fit, and what follows for the parameters of a scenario.
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "sim/base/hash.h"
#include "sim/scenario/layout.h"
#include "sim/scenario/rank_layout.h"
#include "tests/scenario/documents.h"

namespace gradledger::testing {
namespace {

using Sets = RankLayout::Sets;
using Sizes = std::map<std::string, std::uint32_t>;

Sets groups_of(const std::string& name, const std::string& order, const Sizes& sizes, std::uint32_t world) {
  const auto layout = RankLayout::of(order, sizes, world);
  if (!layout) {
    ADD_FAILURE() << layout.error().text();
    return {};
  }
  return layout->groups().at(name);
}

// The table that parallel_state.py of Megatron-Core gives for 16 ranks.
TEST(rank_layout, has_the_groups_that_megatron_gives_for_two_by_four) {
  const Sizes sizes{{"tp", 2}, {"pp", 4}};
  EXPECT_EQ(groups_of("tp", "", sizes, 16), (Sets{{0, 1}, {2, 3}, {4, 5}, {6, 7}, {8, 9}, {10, 11}, {12, 13}, {14, 15}}));
  EXPECT_EQ(groups_of("pp", "", sizes, 16), (Sets{{0, 4, 8, 12}, {1, 5, 9, 13}, {2, 6, 10, 14}, {3, 7, 11, 15}}));
  EXPECT_EQ(groups_of("dp", "", sizes, 16), (Sets{{0, 2}, {1, 3}, {4, 6}, {5, 7}, {8, 10}, {9, 11}, {12, 14}, {13, 15}}));
  EXPECT_EQ(groups_of("mp", "", sizes, 16), (Sets{{0, 1, 4, 5, 8, 9, 12, 13}, {2, 3, 6, 7, 10, 11, 14, 15}}));
  EXPECT_EQ(groups_of("embedding", "", sizes, 16), (Sets{{0, 12}, {4}, {8}, {1, 13}, {5}, {9}, {2, 14}, {6}, {10}, {3, 15}, {7}, {11}}));
}

TEST(rank_layout, puts_context_parallel_ranks_between_tensor_and_data_parallel_ones) {
  const Sizes sizes{{"tp", 2}, {"cp", 2}, {"dp", 2}};
  EXPECT_EQ(groups_of("cp", "tp-cp-ep-dp-pp", sizes, 8), (Sets{{0, 2}, {1, 3}, {4, 6}, {5, 7}}));
  EXPECT_EQ(groups_of("dp", "tp-cp-ep-dp-pp", sizes, 8), (Sets{{0, 4}, {1, 5}, {2, 6}, {3, 7}}));
  EXPECT_EQ(groups_of("dp_cp", "tp-cp-ep-dp-pp", sizes, 8), (Sets{{0, 2, 4, 6}, {1, 3, 5, 7}}));
  EXPECT_EQ(groups_of("tp_cp", "tp-cp-ep-dp-pp", sizes, 8), (Sets{{0, 1, 2, 3}, {4, 5, 6, 7}}));
}

TEST(rank_layout, follows_another_order) {
  const Sizes sizes{{"tp", 2}, {"pp", 2}, {"dp", 2}};
  EXPECT_EQ(groups_of("pp", "tp-cp-ep-pp-dp", sizes, 8), (Sets{{0, 2}, {1, 3}, {4, 6}, {5, 7}}));
  EXPECT_EQ(groups_of("dp", "tp-cp-ep-pp-dp", sizes, 8), (Sets{{0, 4}, {1, 5}, {2, 6}, {3, 7}}));
}

TEST(rank_layout, has_replicas_of_shards_for_data_parallel_ranks) {
  const Sizes sizes{{"tp", 2}, {"shard", 2}, {"replicate", 2}};
  EXPECT_EQ(groups_of("shard", "", sizes, 8), (Sets{{0, 2}, {1, 3}, {4, 6}, {5, 7}}));
  EXPECT_EQ(groups_of("replicate", "", sizes, 8), (Sets{{0, 4}, {1, 5}, {2, 6}, {3, 7}}));
  EXPECT_EQ(groups_of("dp", "", sizes, 8), (Sets{{0, 2, 4, 6}, {1, 3, 5, 7}}));
}

// Eight ranks: dense parameters over two tensor-parallel ones, experts whole, two shares of them.
TEST(rank_layout, cuts_the_same_ranks_anew_for_experts) {
  const Sizes sizes{{"tp", 2}, {"ep", 2}, {"etp", 1}};
  EXPECT_EQ(groups_of("ep", "", sizes, 8), (Sets{{0, 1}, {2, 3}, {4, 5}, {6, 7}}));
  EXPECT_EQ(groups_of("expert_dp", "", sizes, 8), (Sets{{0, 2, 4, 6}, {1, 3, 5, 7}}));
  EXPECT_EQ(groups_of("tp", "", sizes, 8), (Sets{{0, 1}, {2, 3}, {4, 5}, {6, 7}}));
  EXPECT_EQ(groups_of("ep", "", {{"tp", 2}, {"ep", 2}}, 8), (Sets{{0, 2}, {1, 3}, {4, 6}, {5, 7}}));
  EXPECT_EQ(groups_of("expert_dp", "", {{"tp", 2}, {"ep", 2}}, 8), (Sets{{0, 4}, {1, 5}, {2, 6}, {3, 7}}));
}

// Ranks are counted through as an odometer: its first wheel turns with every rank. Those that differ in some wheels alone meet.
Sets by_counting(const std::vector<std::pair<std::string, std::uint32_t>>& wheels, const std::set<std::string>& of) {
  std::map<std::vector<std::uint32_t>, std::vector<std::uint32_t>> met;
  std::vector<std::uint32_t> shown(wheels.size());
  for (std::uint32_t rank = 0;; ++rank) {
    std::vector<std::uint32_t> others;
    for (std::size_t i = 0; i < wheels.size(); ++i) others.push_back(of.contains(wheels[i].first) ? 0 : shown[i]);
    met[others].push_back(rank);
    std::size_t wheel = 0;
    while (wheel < wheels.size() && ++shown[wheel] == wheels[wheel].second) shown[wheel++] = 0;
    if (wheel == wheels.size()) break;
  }
  std::set<std::vector<std::uint32_t>> sorted;
  for (const auto& [others, ranks] : met) sorted.insert(ranks);
  return {sorted.begin(), sorted.end()};
}

TEST(rank_layout, agrees_with_counting_through_random_layouts) {
  std::uint64_t draws = 0;
  const auto draw = [&](std::uint64_t below) { return mix(++draws) % below; };
  for (int round = 0; round < 200; ++round) {
    std::vector<std::pair<std::string, std::uint32_t>> wheels{{"tp", 1}, {"cp", 1}, {"sp", 1}, {"dp", 1}, {"pp", 1}};
    for (std::size_t i = wheels.size(); i-- > 1;) std::swap(wheels[i], wheels[draw(i + 1)]);
    Sizes sizes;
    std::string order;
    std::uint32_t world = 1;
    for (auto& [name, size] : wheels) {
      size = static_cast<std::uint32_t>(1 + draw(3));
      world *= size;
      order += (order.empty() ? "" : "-") + name;
      if (name != "dp") sizes[name] = size;
    }
    const std::pair<std::string, std::set<std::string>> asked[] = {{"tp", {"tp"}}, {"cp", {"cp"}},       {"dp", {"dp"}},
                                                                   {"pp", {"pp"}}, {"mp", {"tp", "pp"}}, {"dp_cp", {"dp", "cp", "sp"}}};
    for (const auto& [name, of] : asked) EXPECT_EQ(groups_of(name, order, sizes, world), by_counting(wheels, of)) << order << " " << name;
  }
}

TEST(rank_layout, is_refused_where_sizes_and_order_do_not_fit) {
  const struct {
    std::string order;
    Sizes sizes;
    std::uint32_t world;
    std::string where, says;
  } bad[] = {
      {"", {{"tp", 3}}, 4, "/layout", "comes to 3 ranks (tp 3); expected a divisor of world_size, 4"},
      {"", {{"tp", 2}, {"dp", 4}}, 4, "/layout", "comes to 8 ranks (tp 2 x dp 4); expected as many as world_size, 4"},
      {"tp-dp", {{"tp", 2}, {"pp", 2}}, 4, "/layout/pp", "is 2, but /layout/order does not say where its ranks lie; expected pp in it"},
      {"tp-pp", {{"tp", 2}}, 4, "/layout/order", "does not say where the 2 ranks of dp lie; expected dp in it"},
      {"tp-tp-dp", {{"tp", 2}}, 4, "/layout/order", "names tp again; expected each dimension once"},
      {"tp-vp-dp", {{"tp", 2}}, 4, "/layout/order", "names \"vp\", which is no dimension; expected some of tp, cp, sp, ep, dp, shard, replicate, pp, with - between them"},
      {"", {{"shard", 2}, {"dp", 2}}, 4, "/layout", "has dp beside replicate or shard, which are its parts; expected one or the other"},
      {"", {{"tp", 2}, {"ep", 3}}, 8, "/layout/ep", "comes to 6 ranks with etp 2 and pp 1; expected a divisor of world_size, 8"},
      {"tp-dp", {{"ep", 2}}, 8, "/layout/ep", "is 2, but /layout/order does not say where its ranks lie; expected ep in it"},
      {"tp-cp-pp-ep-dp",
       {{"cp", 2}, {"pp", 2}, {"ep", 2}},
       8,
       "/layout/order",
       "has the stages of experts on other ranks than those of the rest; expected pp last, or sizes that agree"},
  };
  for (const auto& b : bad) {
    const auto layout = RankLayout::of(b.order, b.sizes, b.world);
    ASSERT_FALSE(layout) << b.says;
    EXPECT_EQ(layout.error().where, b.where);
    EXPECT_EQ(layout.error().message, b.says);
  }
}

// ---- in a scenario ----------------------------------------------------------------------------------------------------------------------

json laid_document() {
  return json::parse(R"({
    "name": "laid", "world_size": 4, "layout": {"tp": 2},
    "parameters": [{"name": "column", "numel": 6, "sharded_over": "tp"}, {"name": "norm", "numel": 3, "summed_over": "tp"},
                   {"name": "bias", "numel": 2}, {"name": "encoder", "numel": 5, "averaged_over": "tp"}],
    "engine": {"framework": "megatron", "config": {"schedule": {"num_microbatches": 2}}},
    "script": [{"zero_grad": "engine"}, {"backward": {"micro_batches": 2}}, {"event": {"name": "finalize_model_grads"}}, {"step": {}}]
  })");
}

json laid_document_with(const std::string& pointer, const json& value) {
  json document = laid_document();
  document[json::json_pointer(pointer)] = value;
  return document;
}

TEST(layout_of_a_scenario, comes_back_as_it_was_written) {
  const Scenario scenario = read(laid_document()).value();
  EXPECT_EQ(parse_whole_scenario(serialise(scenario), ".").value(), scenario);
  const json written = json::parse(serialise(scenario));
  EXPECT_EQ(written["layout"], json({{"tp", 2}}));
  EXPECT_EQ(written["parameters"][0], json({{"name", "column"}, {"numel", 6}, {"sharded_over", "tp"}}));
}

TEST(layout_of_a_scenario, comes_back_with_every_key) {
  for (const bool mesh : {false, true}) {
    const auto scenario = read(every_key_of_a_layout(mesh));
    ASSERT_TRUE(scenario) << scenario.error().text();
    EXPECT_EQ(parse_whole_scenario(serialise(*scenario), ".").value(), *scenario);
  }
}

TEST(layout_of_a_scenario, makes_a_parameter_of_each_part) {
  const Scenario scenario = read(laid_document()).value();
  ASSERT_EQ(scenario.parameters.size(), 5u);
  EXPECT_EQ(scenario.parameters[1].numel, 3u);
  EXPECT_EQ(scenario.parameters[1].part, (ParameterPart{"tp", 1, 2}));
  for (std::uint32_t r = 0; r < 4; ++r) {
    EXPECT_EQ(holds(scenario, r, 0), r % 2 == 0);
    EXPECT_EQ(holds(scenario, r, 1), r % 2 == 1);
    EXPECT_TRUE(holds(scenario, r, 2));
  }
  EXPECT_EQ(parameter_pointer(scenario, 2), "/parameters/1");
}

// Two micro-batches, two data-parallel ranks: 1/4 each. What is summed takes in the tensor-parallel ranks as well, what is averaged divides by them, and of
// copies those of ranks 0 and 2 stand for all.
TEST(layout_of_a_scenario, says_what_every_contribution_is_due_to_weigh) {
  const Scenario scenario = read(laid_document()).value();
  const Timeline timeline = make_timeline(scenario).value();
  const std::vector<std::vector<double>> due{{0.25, 0, 0.25, 0}, {0, 0.25, 0, 0.25}, {0.25, 0.25, 0.25, 0.25}, {0.25, 0, 0.25, 0}, {0.125, 0.125, 0.125, 0.125}};
  for (std::uint32_t p = 0; p < 5; ++p)
    for (std::uint32_t r = 0; r < 4; ++r)
      for (std::uint32_t on = 0; on < 4; ++on)
        EXPECT_EQ(timeline.counts(scenario, 0, r, p) ? timeline.averaged_weight_of(p, 0, r, on, Layer::meant) : 0, due[p][r]) << p << " " << r << " on " << on;
}

// 4 and 8 tokens of two data-parallel ranks, whatever their tensor-parallel neighbours have of the same ones.
TEST(layout_of_a_scenario, counts_tokens_once_for_all_tensor_parallel_ranks) {
  json document = laid_document_with("/tokens", {{"table", {{{2, 2}, {2, 2}, {6, 2}, {6, 2}}}}});
  document["contract"] = {{"divide_by", "tokens"}};
  document["engine"]["config"] = {{"model", {{"calculate_per_token_loss", true}}}};
  document["script"][1]["backward"]["weight"] = "tokens";
  const Scenario scenario = read(document).value();
  const Timeline timeline = make_timeline(scenario).value();
  EXPECT_EQ(timeline.averaged_weight_of(2, 0, 1, 0, Layer::meant), 2.0 / 12);
  EXPECT_EQ(timeline.averaged_weight_of(2, 0, 3, 0, Layer::meant), 6.0 / 12);
  EXPECT_EQ(timeline.averaged_weight_of(3, 0, 2, 1, Layer::meant), 6.0 / 12);
  EXPECT_EQ(timeline.averaged_weight_of(4, 0, 2, 1, Layer::meant), 6.0 / 24);
}

TEST(layout_of_a_scenario, is_refused_with_what_stands_in_the_way) {
  const auto& refused = expect_refused;
  refused(laid_document_with("/layout/tp", 3), "/layout", "comes to 3 ranks");
  refused(laid_document_with("/layout/order", "tp-dp-tp"), "/layout/order", "names tp again");
  refused(laid_document_with("/groups", {{"tp", {{0, 2}, {1, 3}}}}), "/groups/tp", "is [[0, 2], [1, 3]], and by /layout it is [[0, 1], [2, 3]]");
  refused(laid_document_with("/parameters/0/numel", 7), "/parameters/0/numel", "which 2 ranks of \"tp\" do not share alike");
  refused(laid_document_with("/parameters/0/sharded_over", "model"), "/parameters/0/sharded_over", "which neither /layout nor /groups name");
  refused(laid_document_with("/parameters/0/summed_over", "tp"), "/parameters/0/summed_over", "stands beside sharded_over");
  refused(laid_document_with("/parameters/1/summed_over", "dp"), "/parameters/1/summed_over", "expected \"tp\"");
  refused(laid_document_with("/engine/pipeline_stages", 2), "/engine/pipeline_stages", "pp of /layout is 1");
  refused(laid_document_with("/contract", {{"average_over", "data"}}), "/contract/average_over", "is no group");
  refused(laid_document_with("/script/1/backward/ranks", {0, 2, 3}), "/script/1/backward", "runs on one alone of rank 0 and rank 1");
  refused(laid_document_with("/tokens", {{"table", {{{2, 2}, {3, 2}, {6, 2}, {6, 2}}}}}), "/tokens", "are 2 and 3 for a micro-batch of rank 0 and rank 1");
  json of_fsdp1 = every_key_of_a_parallelized_model("fsdp1");
  of_fsdp1["engine"]["config"] = json::object();
  refused(of_fsdp1, "/parameters/0/sharded_over", "every rank's gradient stands for itself");
}

// Runs of DeepSpeed with an mpu averaged over these alone.
TEST(layout_of_a_scenario, gives_deepspeed_the_contract_of_its_data_parallel_ranks) {
  json cut = every_key_of_a_parallelized_model("deepspeed");
  cut["engine"]["config"] = json::object();
  const Scenario scenario = read(cut).value();
  const Contract contract = make_timeline(scenario)->contract;
  EXPECT_EQ(contract.average_divisor, Rational(2));
  EXPECT_EQ(contract.holders, (std::vector<std::vector<std::uint32_t>>{{0, 2}, {1, 3}, {0, 1, 2, 3}}));
}

TEST(layout_of_a_scenario, is_refused_by_deepspeed_where_nobody_ran_it) {
  json cut = every_key_of_a_parallelized_model("deepspeed");
  cut["engine"]["config"] = json::object();
  const auto with = [&](const std::string& pointer, const json& value) {
    json document = cut;
    document[json::json_pointer(pointer)] = value;
    return document;
  };
  expect_refused(with("/layout/tp", 4), "/layout", "leaves each data-parallel rank alone");
  expect_refused(with("/engine/sequence_parallel_size", 2), "/engine/sequence_parallel_size", "expected 1");
  expect_refused(with("/script/2", {{"set_gradient", {{"parameter", "norm"}, {"times", 2.0}}}}), "/script/2", "tensor-parallel ranks of DeepSpeed");
  expect_refused(with("/script/2", {{"save", json::object()}}), "/script/2", "tensor-parallel ranks of DeepSpeed");
  expect_refused(with("/parameters/1/summed_over", "dp"), "/parameters/1/summed_over", "expected \"tp\"");
}

// Averages over two data-parallel ranks, of parts that two ranks hold and of copies that the first of two stands for.
TEST(layout_of_a_scenario, gives_wrappers_of_pytorch_the_contract_of_its_data_parallel_ranks) {
  for (const char* framework : {"fsdp2", "ddp"}) {
    const Scenario scenario = read(every_key_of_a_parallelized_model(framework)).value();
    const Contract contract = make_timeline(scenario)->contract;
    EXPECT_EQ(contract.average_divisor, Rational(2));
    EXPECT_EQ(contract.holders, (std::vector<std::vector<std::uint32_t>>{{0, 2}, {1, 3}, {0, 1, 2, 3}}));
    EXPECT_TRUE(contract.share(0) == nullptr || !contract.share(2)->copies);
    EXPECT_EQ(contract.share(2)->first, (std::vector<std::uint32_t>{0, 0, 2, 2}));
  }
}

TEST(layout_of_a_scenario, is_refused_by_wrappers_of_pytorch_where_they_have_no_place_for_it) {
  for (const char* framework : {"fsdp2", "ddp"}) {
    const json laid = every_key_of_a_parallelized_model(framework);
    const auto with = [&](const std::string& pointer, const json& value) {
      json document = laid;
      document[json::json_pointer(pointer)] = value;
      return document;
    };
    json averaged = laid;
    averaged["parameters"][1].erase("summed_over");
    averaged["parameters"][1]["averaged_over"] = "tp";
    expect_refused(averaged, "/parameters/1/averaged_over", "no rank averages over tensor-parallel ones");
    expect_refused(with("/parameters/1/summed_over", "dp"), "/parameters/1/summed_over", "expected \"tp\"");
    expect_refused(with("/engine/config/plain", {"none"}), "/engine/config/plain/0", "names no parameter");
    json alone = with("/parameters", json::parse(R"([{"name": "norm", "numel": 4}])"));
    alone.erase("layout");
    expect_refused(alone, "/engine/config/plain/0", "is no DTensor");
    json written = with("/groups", {{"tp", {{0, 1}, {2, 3}}}});
    written.erase("layout");
    written["engine"]["config"] = json::object();
    expect_refused(written, "/parameters/0/sharded_over", "of two or more ranks of /layout");
  }
  json cut = every_key_of_a_parallelized_model("fsdp2");
  cut["engine"]["config"]["plain"] = {"w"};
  expect_refused(cut, "/engine/config/plain/0", "which is cut over tensor-parallel ranks");
  json frozen = every_key_of_a_parallelized_model("ddp");
  frozen["parameters"][0]["trainable"] = false;
  expect_refused(frozen, "/parameters/0/trainable", "wait for a gradient");
  json saved = every_key_of_a_parallelized_model("ddp");
  saved["script"].push_back({{"save", json::object()}});
  expect_refused(saved, "/script/3", "no parameters to save");
}

TEST(layout_of_a_scenario, goes_with_written_groups_that_say_the_same) { EXPECT_TRUE(read(laid_document_with("/groups", {{"tp", {{3, 2}, {0, 1}}}}))); }

// Without a layout: the groups of the same ranks, one by one.
TEST(layout_of_a_scenario, is_what_written_groups_are_too) {
  json written = laid_document();
  written.erase("layout");
  written["groups"] = {{"tp", {{0, 1}, {2, 3}}}, {"dp_cp", {{0, 2}, {1, 3}}}};
  const Scenario one = read(laid_document()).value(), other = read(written).value();
  const Contract a = make_timeline(one)->contract, b = make_timeline(other)->contract;
  EXPECT_EQ(a.holders, b.holders);
  EXPECT_EQ(a.shares, b.shares);
  EXPECT_EQ(a.share_of, b.share_of);
  EXPECT_EQ(a.average_divisor, b.average_divisor);
}

}  // namespace
}  // namespace gradledger::testing
