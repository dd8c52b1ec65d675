// Every place of a document, bent in every way that the schema forbids: refused there, and the message says what would be right.
#include "sim/scenario/schema.h"

#include <algorithm>
#include <limits>
#include <set>

#include <gtest/gtest.h>

#include "sim/base/limits.h"
#include "sim/scenario/json_reader.h"
#include "sim/frameworks/deepspeed/config_json.h"
#include "tests/scenario/documents.h"
#include "tests/support/sanitized.h"

namespace gradledger {
namespace {

using testing::expect_refused;
using testing::json;

const json& resolved(const json& node) {
  if (!node.contains("$ref")) return node;
  return scenario_schema().at(json::json_pointer(node["$ref"].get<std::string>().substr(1)));
}

bool has_type(const std::string& type, const json& value) {
  return (type == "object" && value.is_object()) || (type == "array" && value.is_array()) || (type == "string" && value.is_string()) || (type == "boolean" && value.is_boolean()) ||
         (type == "null" && value.is_null()) || (type == "integer" && value.is_number_integer()) || (type == "number" && value.is_number());
}

// Whether a value of this type can be right there at all.
bool admits(const json& node, const json& value) {
  if (node.contains("oneOf")) return std::any_of(node["oneOf"].begin(), node["oneOf"].end(), [&](const json& a) { return admits(resolved(a), value); });
  if (node.contains("enum")) return std::find(node["enum"].begin(), node["enum"].end(), value) != node["enum"].end();
  if (node["type"].is_string()) return has_type(node["type"], value);
  return std::any_of(node["type"].begin(), node["type"].end(), [&](const json& type) { return has_type(type, value); });
}

// A value in a document, with the part of the schema that it is held against.
struct Place {
  const json* document;
  std::string pointer;
  const json* value;
  const json* rule;
  bool alternative;  // of several that the place has
};

void collect(const json& document, const json& unresolved, const json& value, const std::string& pointer, std::vector<Place>& out, bool alternative = false) {
  const json& rule = resolved(testing::rule_at(document, unresolved, pointer));
  out.push_back({&document, pointer, &value, &rule, alternative});
  if (rule.contains("oneOf")) {
    for (const json& one : rule["oneOf"])
      if (admits(resolved(one), value)) collect(document, one, value, pointer, out, true);
    return;
  }
  if (!value.is_structured()) return;
  for (const auto& [key, inner] : value.items()) {
    const std::string at = pointer + "/" + pointer_token(key);
    if (value.is_array()) collect(document, rule["items"], inner, at, out);
    else if (rule.contains("properties") && rule["properties"].contains(key)) collect(document, rule["properties"][key], inner, at, out);
    else if (rule.contains("additionalProperties") && rule["additionalProperties"].is_object()) collect(document, rule["additionalProperties"], inner, at, out);
    else if (pointer.ends_with("/event") && !rule.contains("additionalProperties")) continue;  // of an event that a framework alone has: it checks them
    else ADD_FAILURE() << at << " is not in the schema";
  }
}

const std::vector<Place>& places() {
  static const std::vector<json> documents = testing::rich_documents();
  static const std::vector<Place> all = [] {
    std::vector<Place> out;
    for (const json& document : documents) collect(document, scenario_schema(), document, "", out);
    return out;
  }();
  return all;
}

// With sanitizers one of several is tried.
bool is_left_out(std::size_t& seen, std::size_t one_of = 4) { return testing::sanitized && seen++ % one_of != 0; }

json with(const Place& place, const json& value) {
  json out = *place.document;
  out[json::json_pointer(place.pointer)] = value;
  return out;
}

TEST(schema, the_documents_reach_every_kind_of_place) { EXPECT_GT(places().size(), 300u); }

TEST(schema, a_value_of_a_wrong_type_is_refused_where_it_stands) {
  const std::vector<json> others{nullptr, true, 7, 0.5, "text", json::array(), json::object()};
  std::size_t refused = 0, seen = 0;
  for (const Place& place : places()) {
    for (const json& other : others) {
      if (place.alternative || admits(*place.rule, other) || is_left_out(seen, 13)) continue;
      expect_refused(with(place, other), place.pointer, "; expected ");
      ++refused;
    }
  }
  EXPECT_GT(refused, testing::sanitized ? 100u : 1000u);
}

TEST(schema, an_unknown_key_is_refused_in_every_object) {
  std::size_t refused = 0, seen = 0;
  for (const Place& place : places()) {
    if (!place.value->is_object() || place.rule->value("additionalProperties", json(true)) != false || is_left_out(seen)) continue;
    json value = *place.value;
    value["no_such/key~"] = 1;
    expect_refused(with(place, value), place.pointer + "/no_such~1key~0", "is not a key that is known here; expected one of ");
    ++refused;
  }
  EXPECT_GT(refused, testing::sanitized ? 20u : 50u);
}

TEST(schema, a_missing_key_is_named) {
  std::size_t refused = 0, seen = 0;
  for (const Place& place : places()) {
    for (const json& key : place.rule->value("required", json::array())) {
      if (is_left_out(seen)) continue;
      json value = *place.value;
      value.erase(key.get<std::string>());
      expect_refused(with(place, value), place.pointer, "lacks " + key.dump() + ": expected ");
      ++refused;
    }
  }
  EXPECT_GT(refused, testing::sanitized ? 20u : 50u);
}

TEST(schema, a_number_outside_its_range_is_refused_and_the_range_is_named) {
  std::size_t refused = 0, seen = 0;
  for (const Place& place : places()) {
    const json& rule = *place.rule;
    if (!place.value->is_number() || is_left_out(seen)) continue;
    const auto number = [](const json& bound) { return bound.is_number_integer() ? bound.dump() : std::to_string(bound.get<std::int64_t>()); };
    const auto refuse = [&](const json& value, const std::string& words) {
      expect_refused(with(place, value), place.pointer, words);
      ++refused;
    };
    if (rule.contains("minimum")) refuse(rule["minimum"].get<std::int64_t>() - 1, " from " + number(rule["minimum"]));
    if (rule.contains("maximum")) refuse(rule["maximum"].get<std::int64_t>() + 1, " to " + number(rule["maximum"]));
    if (rule.contains("maximum")) refuse(std::numeric_limits<std::uint64_t>::max(), " to " + number(rule["maximum"]));
    if (rule.contains("exclusiveMinimum")) refuse(rule["exclusiveMinimum"], "above " + number(rule["exclusiveMinimum"]));
    if (rule.contains("exclusiveMaximum")) refuse(rule["exclusiveMaximum"], "below " + number(rule["exclusiveMaximum"]));
  }
  EXPECT_GT(refused, testing::sanitized ? 25u : 100u);
}

TEST(schema, an_array_of_a_wrong_length_is_refused_and_the_lengths_are_named) {
  std::size_t refused = 0;
  std::set<const json*> tried;
  for (const Place& place : places()) {
    const json& rule = *place.rule;
    if (!place.value->is_array() || place.value->empty() || !tried.insert(&rule).second) continue;
    if (rule.value("minItems", 0) > 0) {
      expect_refused(with(place, json::array()), place.pointer, "is an array of 0 entries; expected an array of ");
      ++refused;
    }
    const std::size_t most = rule.value("maxItems", std::size_t{0});
    if (most == 0 || (most > (testing::sanitized ? 256 : 4096) && place.pointer != "/script")) continue;
    const json longer(most + 1, place.value->front());
    expect_refused(with(place, longer), place.pointer, "is an array of " + std::to_string(most + 1) + " entries; expected an array of ");
    ++refused;
  }
  EXPECT_GT(refused, testing::sanitized ? 10u : 20u);
}

TEST(schema, a_text_of_a_wrong_length_is_refused_and_the_lengths_are_named) {
  std::size_t refused = 0;
  for (const Place& place : places()) {
    if (!place.value->is_string() || !place.rule->contains("maxLength")) continue;
    const std::size_t most = (*place.rule)["maxLength"];
    expect_refused(with(place, std::string(most + 1, 'x')), place.pointer, std::to_string(most) + " characters");
    ++refused;
    if (!place.rule->contains("minLength")) continue;
    expect_refused(with(place, ""), place.pointer, "1 to " + std::to_string(most) + " characters");
  }
  EXPECT_GT(refused, 8u);
}

TEST(schema, its_limits_are_those_of_the_program) {
  const std::vector<std::pair<const char*, std::uint64_t>> table{
      {"/properties/world_size/maximum", limits::world_size_max},
      {"/properties/parameters/oneOf/0/maxItems", limits::parameters_max},
      {"/properties/parameters/oneOf/0/items/properties/numel/maximum", limits::parameter_numel_max},
      {"/properties/parameters/oneOf/0/items/properties/name/maxLength", limits::name_length_max},
      {"/properties/name/maxLength", limits::name_length_max},
      {"/definitions/deepspeed_config/properties/gradient_accumulation_steps/maximum", limits::gradient_accumulation_steps_max},
      {"/definitions/deepspeed_config/properties/train_batch_size/maximum", limits::batch_size_max},
      {"/definitions/deepspeed_config/properties/train_micro_batch_size_per_gpu/maximum", limits::batch_size_max},
      {"/definitions/deepspeed_config/properties/fp16/properties/loss_scale_window/maximum", limits::loss_scale_steps_max},
      {"/definitions/deepspeed_config/properties/fp16/properties/hysteresis/maximum", limits::loss_scale_steps_max},
      {"/properties/gradients/properties/micro_batches/maxItems", limits::micro_batches_max},
      {"/properties/gradients/properties/layers/maxItems", limits::mlp_layers_max},
      {"/properties/gradients/properties/layers/items/properties/in/maximum", limits::mlp_width_max},
      {"/properties/gradients/properties/layers/items/properties/out/maximum", limits::mlp_width_max},
      {"/properties/gradients/properties/layers/items/properties/weight/maxLength", limits::name_length_max},
      {"/properties/gradients/properties/layers/items/properties/bias/maxLength", limits::name_length_max},
      {"/properties/expect/properties/values/items/properties/event/maximum", limits::events_max - 1},
      {"/properties/expect/properties/values/items/properties/rank/maximum", limits::world_size_max - 1},
      {"/properties/expect/properties/values/items/properties/buffer/maxLength", limits::name_length_max},
      {"/properties/expect/properties/memory/items/properties/rank/maximum", limits::world_size_max - 1},
      {"/properties/expect/properties/memory/items/properties/resident/maximum", limits::bytes_max},
      {"/properties/expect/properties/memory/items/properties/at_most_resident/maximum", limits::bytes_max},
      {"/properties/expect/properties/memory/items/properties/peak/maximum", limits::bytes_max},
      {"/properties/expect/properties/memory/items/properties/at_most_peak/maximum", limits::bytes_max},
      {"/properties/expect/properties/not_allocated/items/maxLength", limits::name_length_max},
      {"/definitions/item/properties/backward/properties/micro_batches/maximum", limits::micro_batches_max},
      {"/definitions/item/properties/backward/properties/micro_batch/maximum", limits::micro_batches_max - 1},
      {"/definitions/item/properties/backward/properties/uses/maxItems", limits::parameters_max},
      {"/definitions/item/properties/backward/properties/ranks/maxItems", limits::world_size_max},
      {"/definitions/item/properties/backward/properties/ranks/items/maximum", limits::world_size_max - 1},
      {"/definitions/item/properties/repeat/properties/times/maximum", limits::repeat_times_max},
  };
  for (const auto& [pointer, limit] : table) EXPECT_EQ(scenario_schema().at(json::json_pointer(pointer)), limit) << pointer;
  for (const char* purpose : {"gradient", "norm", "overflow", "parameter", "user", "control"})
    for (const auto& [key, most] : {std::pair{"per_step", std::uint64_t{limits::collectives_max}}, std::pair{"at_most_per_step", std::uint64_t{limits::collectives_max}},
                                    std::pair{"bytes_per_step", limits::bytes_max}, std::pair{"at_most_bytes_per_step", limits::bytes_max}})
      EXPECT_EQ(scenario_schema()["properties"]["expect"]["properties"]["collectives"]["properties"][purpose]["properties"][key]["maximum"], most);
}

TEST(schema, a_misspelt_key_or_word_gets_the_likely_one) {
  const auto suggests = [](const std::string& pointer, const json& value, const std::string& where, const std::string& word) {
    expect_refused(testing::small_document_with(pointer, value), where, "did you mean \"" + word + "\"?");
  };
  suggests("/world_sise", 2, "/world_sise", "world_size");
  suggests("/engine/config/gradient_acumulation_steps", 2, "/engine/config/gradient_acumulation_steps", "gradient_accumulation_steps");
  suggests("/engine/config/zero_optimization/Stage", 2, "/engine/config/zero_optimization/Stage", "stage");
  suggests("/script/0", {{"bakcward", json::object()}}, "/script/0/bakcward", "backward");
  suggests("/engine/config/bf16", {{"enable", true}}, "/engine/config/bf16/enable", "enabled");
  suggests("/model_dtype", "bf-16", "/model_dtype", "bf16");
  suggests("/engine/optimizer", {{"type", "sgd"}}, "/engine/optimizer/type", "SGD");
  suggests("/expect/findings", {{{"class", "boundary-leek"}}}, "/expect/findings/0/class", "boundary-leak");
}

TEST(schema, a_word_that_is_nothing_like_any_other_gets_no_suggestion) {
  for (const char* key : {"x", "lr", "batch", "an_entirely_different_key"}) {
    const InputError error = testing::error_of(testing::read(testing::small_document_with(std::string("/") + key, 1)));
    EXPECT_EQ(error.message.find("did you mean"), std::string::npos) << error.text();
  }
}

TEST(schema, an_event_with_two_keys_names_both) {
  const json two = {{"backward", json::object()}, {"step", json::object()}};
  expect_refused(testing::small_document_with("/script/1", two), "/script/1", "has the keys \"backward\" and \"step\"; expected an object with exactly one of the keys");
  expect_refused(testing::small_document_with("/script/1", {{"repeat", {{"times", 2}, {"of", {two}}}}}), "/script/1/repeat/of/0", "has the keys \"backward\" and \"step\"");
  expect_refused(testing::small_document_with("/script/1", json::object()), "/script/1", "is an empty object; expected an object with exactly one of the keys");
  expect_refused(testing::small_document_with("/script/1", json::array({1, 2})), "/script/1", "is an array of 2 entries; expected an object with exactly one of the keys");
}

TEST(schema, the_word_auto_gets_a_hint_that_values_are_concrete) {
  for (const char* key : {"/train_batch_size", "/gradient_accumulation_steps", "/gradient_clipping", "/bf16", "/zero_optimization/reduce_bucket_size"})
    expect_refused(testing::small_document_with(std::string("/engine/config") + key, "auto"), std::string("/engine/config") + key,
                   "\"auto\" is for a launcher to fill in, here every value must be concrete");
}

TEST(schema, a_configuration_alone_is_held_against_the_same_rules) {
  const auto good = parse_deepspeed_config({{"zero_optimization", {{"stage", 2}}}}, 2, "/ds_config");
  ASSERT_TRUE(good) << good.error().text();
  EXPECT_EQ(good->zero.stage, 2u);
  const auto wrong = parse_deepspeed_config({{"zero_optimization", {{"stage", 4}}}}, 2, "/ds_config");
  ASSERT_FALSE(wrong);
  EXPECT_EQ(wrong.error().where, "/ds_config/zero_optimization/stage");
  const auto misfit = parse_deepspeed_config({{"train_batch_size", 3}}, 2, "/ds_config");
  ASSERT_FALSE(misfit);
  EXPECT_EQ(misfit.error().where, "/ds_config/train_batch_size");
}

}  // namespace
}  // namespace gradledger
