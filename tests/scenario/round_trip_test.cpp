// Parse, serialise, parse: the same value, whatever a scenario holds.
#include <gtest/gtest.h>

#include "sim/base/hash.h"
#include "sim/base/limits.h"
#include "sim/frameworks/deepspeed/settings.h"
#include "sim/scenario/schema.h"
#include "sim/scenario/timeline.h"
#include "tests/scenario/documents.h"
#include "tests/scenario/random_scenario.h"

namespace gradledger {
namespace {

using testing::json;

TEST(round_trip, rich_documents_come_back_as_they_were) {
  const testing::TemporaryFolder folder;
  folder.write("table.gradients.json", testing::table_text);
  folder.write("t.tokens.json", testing::tokens_text);
  folder.write("model.shapes", testing::shapes_text);
  for (const json& document : testing::rich_documents()) {
    const auto first = read_scenario(document.dump(), folder.path());
    ASSERT_TRUE(first) << document["name"] << ": " << first.error().text();
    const std::string text = serialise(*first);
    const auto second = read_scenario(text, folder.path());
    ASSERT_TRUE(second) << second.error().text() << "\n" << text;
    EXPECT_TRUE(*first == *second) << text;
    EXPECT_EQ(serialise(*second), text);
  }
}

TEST(round_trip, what_loops_around_other_wrappers_do_comes_back_as_it_was_and_is_not_for_deepspeed) {
  const json document = testing::loop_document();
  const auto first = parse_scenario(document.dump(), ".", testing::config_readers);
  ASSERT_TRUE(first) << first.error().text();
  const auto second = parse_scenario(serialise(*first), ".", testing::config_readers);
  ASSERT_TRUE(second) << second.error().text();
  EXPECT_TRUE(*first == *second);
  for (const json& item : document["script"]) {
    const auto alone = read_scenario(testing::small_document_with("/script", json::array({item, {{"backward", json::object()}}, {{"step", json::object()}}})).dump(), ".");
    EXPECT_EQ(testing::error_of(alone).where, "/script/0") << item;
  }
}

TEST(round_trip, nothing_of_a_configuration_is_lost) {
  const auto scenario = testing::read(testing::rich_documents()[0]);
  ASSERT_TRUE(scenario) << scenario.error().text();
  const DeepSpeedConfig& config = deepspeed_config(*scenario);
  EXPECT_EQ(config.gradient_accumulation_steps, 4u);
  EXPECT_EQ(config.gradient_allreduce_op, AllreduceOp::sum);
  EXPECT_TRUE(config.prescale_gradients);
  EXPECT_EQ(config.gradient_predivide_factor, 2.5);
  EXPECT_EQ(config.communication_data_type, Dtype::float32);
  EXPECT_EQ(config.seq_parallel_communication_data_type, Dtype::bfloat16);
  EXPECT_EQ(config.autotp_size, 1u);
  EXPECT_EQ(config.grad_accum_dtype, Dtype::float32);
  EXPECT_EQ(config.gradient_clipping, 0.75);
  EXPECT_EQ(config.bf16, (Bf16Config{true, true, false}));
  EXPECT_EQ(config.fp16, (Fp16Config{false, 128.0, 12, 500, 3, true, 0.5}));
  EXPECT_EQ(config.zero, (ZeroConfig{1, false, true, false, 500'000'000, true, true, 1'000'000, OffloadDevice::cpu, true, OffloadDevice::cpu, false}));
  EXPECT_EQ(scenario->engine.optimizer, (OptimizerConfig{OptimizerType::adamw, 0.015625, 0.875, 0.96875, 0.0625, 0.25, true}));
  EXPECT_EQ(scenario->engine.param_groups, (std::vector<OptimizerGroup>{{{4, 0}, 0.25, {}}, {{1, 2, 3}, {}, 0.5}}));
  EXPECT_EQ(scenario->engine.as_of.base, "0.18.9");
  EXPECT_EQ(scenario->engine.as_of.switches, (std::map<std::string, std::string>{{"offload_keep", "gate_ga"}, {"scale_site", "output_hook"}}));
  const json inert = json::parse(config.inert);
  EXPECT_EQ(inert.size(), 9u);
  EXPECT_EQ(inert["zero_optimization"].size(), 14u);
  EXPECT_EQ(inert["zero_optimization"]["offload_optimizer"].size(), 5u);
}

TEST(round_trip, nothing_of_a_contract_and_of_expectations_is_lost) {
  const auto scenario = testing::read(testing::rich_documents()[0]);
  ASSERT_TRUE(scenario);
  StatedContract contract;
  contract.window = Window::every_step_call;
  contract.average_over = "none";
  contract.divide(3);
  contract.zero_grad_discards = false;
  EXPECT_EQ(scenario->contract, contract);
  EXPECT_EQ(scenario->gradients.seed, 9007199254740991u);
  EXPECT_EQ(scenario->gradients.samples_per_micro_batch, 8u);
  const Expect& expect = scenario->expect;
  ASSERT_EQ(expect.findings.size(), 3u);
  EXPECT_EQ(expect.findings[0].own, 3.0 / 8);
  EXPECT_EQ(expect.findings[0].peer, 0.25);
  EXPECT_EQ(expect.findings[0].lost_weight, 1.0 / 3);
  EXPECT_EQ(expect.findings[0].contributions->text(), "micro_batch < 3");
  EXPECT_EQ(expect.findings[1].peer, 0.0);
  EXPECT_EQ(expect.findings[2], (ExpectedFinding{"deadlock", {}, {}, {}, {}}));
  EXPECT_EQ(expect.collectives.at("overflow"), (ExpectedCollectives{0, 1, 0, 1}));
  EXPECT_EQ(expect.collectives.size(), 6u);
  EXPECT_EQ(expect.collectives.at("norm").bytes_per_step, 4u);
  EXPECT_EQ(expect.collectives.at("parameter").at_most_bytes_per_step, limits::bytes_max);
  ASSERT_EQ(expect.memory.size(), 2u);
  EXPECT_EQ(expect.memory[0], (ExpectedMemory{"accumulators", "host", "boundary", 3, 0, 1, 2, 3}));
  EXPECT_EQ(expect.memory[1], (ExpectedMemory{"gradient memory", "device", "", {}, {}, {}, limits::bytes_max, {}}));
  EXPECT_FALSE(expect.accounting_only);
  const auto large = testing::read(testing::small_document_with("/expect", {{"accounting_only", true}, {"not_allocated", {"zeros"}}}));
  ASSERT_TRUE(large);
  EXPECT_TRUE(large->expect.accounting_only);
  EXPECT_TRUE(*testing::read(json::parse(serialise(*large))) == *large);
  EXPECT_EQ(expect.values, (std::vector<ExpectedValues>{{6, 3, "w1.grad", {1, -0.5, 1e30}}}));
  EXPECT_EQ(expect.comparison, (ExpectedComparison{"../other.json", false}));
}

TEST(round_trip, given_values_keep_infinities_and_nan) {
  const auto scenario = testing::read(testing::rich_documents()[1]);
  ASSERT_TRUE(scenario) << scenario.error().text();
  const GivenValues& values = *scenario->gradients.values;
  ASSERT_EQ(values.size(), 2u);
  EXPECT_TRUE(std::isinf(values[0][0][1]) && values[0][0][1] > 0);
  EXPECT_TRUE(std::signbit(values[0][0][2]) && values[0][0][2] == 0);
  EXPECT_TRUE(std::isinf(values[0][1][0]) && values[0][1][0] < 0);
  EXPECT_TRUE(std::isnan(values[0][1][1]));
  EXPECT_EQ(values[1][0], (std::vector<double>{65504, 3, 16777216}));
}

TEST(round_trip, values_compare_as_values_and_a_nan_equals_a_nan) {
  const auto with = [](double x) {
    Gradients out;
    out.kind = GradientKind::values;
    out.values = std::make_shared<GivenValues>(GivenValues{{{1.0, x}}});
    return out;
  };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(with(nan) == with(nan));
  EXPECT_TRUE(with(2) == with(2));
  EXPECT_FALSE(with(2) == with(3));
  EXPECT_FALSE(with(2) == with(nan));
  EXPECT_FALSE(with(nan) == with(2));
  EXPECT_FALSE(with(2) == Gradients{});
}

// Marks the properties of the schema that a document uses.
void mark(const json& unresolved, const json& value, std::set<const json*>& used) {
  const json& root = scenario_schema();
  const json& node = unresolved.contains("$ref") ? root.at(json::json_pointer(unresolved["$ref"].get<std::string>().substr(1))) : unresolved;
  if (node.contains("oneOf"))
    for (const json& alternative : node["oneOf"]) mark(alternative, value, used);
  if (value.is_array() && node.contains("items"))
    for (const json& entry : value) mark(node["items"], entry, used);
  if (!value.is_object() || !node.contains("properties")) return;
  for (const auto& [key, inner] : value.items()) {
    if (!node["properties"].contains(key)) continue;
    used.insert(&node["properties"][key]);
    mark(node["properties"][key], inner, used);
  }
}

void every_property(const json& node, const std::string& where, std::map<const json*, std::string>& out) {
  if (!node.is_structured()) return;
  if (node.is_object() && node.contains("properties"))
    for (const auto& [key, inner] : node["properties"].items()) out[&inner] = where + "/properties/" + key;
  for (const auto& [key, inner] : node.items())
    if (key != "allOf") every_property(inner, where + "/" + key, out);
}

TEST(round_trip, the_rich_documents_use_every_key_of_the_schema) {
  std::set<const json*> used;
  for (const json& document : testing::rich_documents()) {
    mark(scenario_schema(), document, used);
    mark(testing::rule_at(document, json(), "/engine/config"), document["engine"]["config"], used);
  }
  mark(scenario_schema(), testing::loop_document(), used);
  // An event of a framework's own: none here has one, tests/frameworks has.
  mark(scenario_schema()["definitions"]["item"], {{"event", {{"name", "flush"}, {"ranks", {0}}}}}, used);
  // Of Muon alone, which no configuration of theirs goes with.
  const json muon{{"type", "Muon"}, {"momentum", 0.5}};
  mark(scenario_schema(), {{"engine", {{"optimizer", muon}}}}, used);
  mark(scenario_schema()["definitions"]["deepspeed_config"], {{"optimizer", {{"type", "Muon"}, {"params", {{"momentum", 0.5}}}}}}, used);
  std::map<const json*, std::string> all;
  every_property(scenario_schema(), "", all);
  EXPECT_GT(all.size(), 100u);
  for (const auto& [property, where] : all) EXPECT_TRUE(used.contains(property)) << where << " is in no document";
}

TEST(round_trip, muon_keeps_its_momentum_in_either_place) {
  json document = testing::small_document();
  document["engine"]["optimizer"] = {{"type", "Muon"}, {"momentum", 0.5}};
  const auto beside = testing::read(document);
  ASSERT_TRUE(beside) << beside.error().text();
  EXPECT_EQ(beside->engine.optimizer.momentum, 0.5);
  EXPECT_EQ(beside->engine.optimizer.learning_rate, 0.02);
  document["engine"].erase("optimizer");
  document["engine"]["config"]["optimizer"] = {{"type", "Muon"}, {"params", {{"momentum", 0.5}}}};
  const auto inside = testing::read(document);
  ASSERT_TRUE(inside) << inside.error().text();
  EXPECT_EQ(inside->engine.optimizer, beside->engine.optimizer);
  const auto again = testing::read(to_json(*inside));
  ASSERT_TRUE(again) << again.error().text();
  EXPECT_EQ(again->engine.optimizer, beside->engine.optimizer);
}

TEST(round_trip, momentum_is_of_muon_alone_and_muon_of_frameworks_that_name_optimizers) {
  json document = testing::small_document();
  const auto refused_at = [&](const char* type, const char* key, const json& value) {
    document["engine"]["optimizer"] = {{"type", type}, {key, value}};
    const auto read = testing::read(document);
    return read ? std::string() : read.error().where;
  };
  EXPECT_EQ(refused_at("Adam", "momentum", 0.5), "/engine/optimizer/momentum");
  EXPECT_EQ(refused_at("Muon", "betas", {0.5, 0.5}), "/engine/optimizer/betas");
  EXPECT_EQ(refused_at("Muon", "lr", 0.5), "");
  document["engine"] = {{"framework", "ddp"}, {"config", json::object()}};
  EXPECT_EQ(refused_at("Muon", "lr", 0.5), "/engine/optimizer/type");
}

TEST(round_trip, any_scenario_value_comes_back_as_it_was) {
  std::set<std::string> texts;
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    const Scenario scenario = testing::RandomScenario(seed).make();
    const std::string text = serialise(scenario);
    const auto parsed = parse_scenario(text, ".", testing::config_readers);
    ASSERT_TRUE(parsed) << "seed " << seed << ": " << parsed.error().text() << "\n" << text;
    ASSERT_TRUE(*parsed == scenario) << "seed " << seed << "\n" << text << "\nbecame\n" << serialise(*parsed);
    ASSERT_EQ(serialise(*parsed), text);
    texts.insert(text);
  }
  EXPECT_EQ(texts.size(), 400u);
}

TEST(round_trip, keys_in_another_order_make_no_difference) {
  json document = testing::small_document();
  std::string reversed = "{";
  std::vector<std::string> keys;
  for (const auto& [key, unused] : document.items()) keys.push_back(key);
  for (auto key = keys.rbegin(); key != keys.rend(); ++key) reversed += (reversed.size() > 1 ? "," : "") + json(*key).dump() + ":" + document[*key].dump();
  const auto one = read_scenario(document.dump(), "."), other = read_scenario(reversed + "}", ".");
  ASSERT_TRUE(one && other);
  EXPECT_TRUE(*one == *other);
}

}  // namespace
}  // namespace gradledger
