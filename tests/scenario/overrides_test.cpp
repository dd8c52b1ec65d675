// What is said in place of a file: where it goes, and how errors name it.
#include "sim/scenario/overrides.h"

#include <set>

#include <gtest/gtest.h>

#include "tests/scenario/documents.h"

namespace gradledger {
namespace {

using testing::json;

Override set(const std::string& text) {
  auto read = config_override(text);
  EXPECT_TRUE(read) << read.error().text();
  return std::move(read).value();
}

const DeepSpeedConfig& config_with(const std::vector<std::string>& texts, Scenario& into) {
  std::vector<Override> overrides;
  for (const std::string& text : texts) overrides.push_back(set(text));
  auto read = read_scenario(testing::small_document().dump(), ".", overrides);
  EXPECT_TRUE(read) << read.error().text();
  into = std::move(read).value();
  return deepspeed_config(into);
}

TEST(an_override, goes_where_its_dots_or_its_pointer_lead) {
  Scenario s;
  EXPECT_EQ(config_with({"zero_optimization.stage=2"}, s).zero.stage, 2u);
  EXPECT_EQ(config_with({"/zero_optimization/stage=2"}, s).zero.stage, 2u);
  EXPECT_EQ(config_with({"zero_optimization={\"stage\": 3}"}, s).zero.stage, 3u);
  EXPECT_EQ(config_with({"zero_optimization.stage=2", "zero_optimization.stage=1"}, s).zero.stage, 1u) << "the last one holds";
  EXPECT_TRUE(config_with({"zero_optimization.offload_optimizer.device=cpu"}, s).offloads_optimizer()) << "a text that is no JSON stands for itself";
  EXPECT_EQ(config_with({"communication_data_type=bfloat16"}, s).communication_data_type, Dtype::bfloat16);
  EXPECT_EQ(config_with({"communication_data_type=null"}, s).communication_data_type, std::nullopt);
}

TEST(an_override, of_the_release_takes_the_place_of_switches_too) {
  auto document = testing::small_document_with("/engine/as_of", {{"base", "0.18.9"}, {"offload_keep", "gate_ga"}});
  const auto read = read_scenario(document.dump(), ".", {as_of_override("0.19.0")});
  ASSERT_TRUE(read) << read.error().text();
  EXPECT_EQ(read->engine.as_of, (AsOf{"0.19.0", {}}));
}

TEST(an_override, that_is_wrong_is_named_by_its_option) {
  const auto refused = [](std::vector<Override> overrides, const std::string& where, const std::string& part) {
    const auto read = read_scenario(testing::small_document().dump(), ".", overrides);
    ASSERT_FALSE(read);
    EXPECT_EQ(read.error().where, where);
    EXPECT_NE(read.error().message.find(part), std::string::npos) << read.error().text();
  };
  refused({set("zero_optimization.stage=7")}, "--config zero_optimization.stage", "is 7; expected ");
  refused({set("zero_optimization.stge=2")}, "--config zero_optimization.stge", "did you mean \"stage\"?");
  refused({set("zero_optimization={\"stage\": 7}")}, "--config zero_optimization: /stage", "is 7; expected ");
  refused({set("zero_optimization.offload_optimizer.pin_memory=true")},
          "--config zero_optimization.offload_optimizer.pin_memory: /engine/config/zero_optimization/offload_optimizer", "lacks \"device\"");
  refused({set("train_batch_size=3")}, "--config train_batch_size", "is 3; expected ");
  refused({set("gradient_accumulation_steps.deep=3")}, "--config gradient_accumulation_steps.deep", "leads through /engine/config/gradient_accumulation_steps, which is 2");
  refused({as_of_override("0.18.99x")}, "--as-of", "unknown release");
  refused({set("bf16.enabled=Ture")}, "--config bf16.enabled", "is \"Ture\"; expected a boolean");
}

TEST(an_override, of_an_array_names_one_of_its_entries) {
  auto document = testing::every_key_of_ddp(true);
  EXPECT_TRUE(read_scenario(document.dump(), ".", {set("bucket_cap_mb_list.1=4")}));
  const auto read = read_scenario(document.dump(), ".", {set("bucket_cap_mb_list.2=4")});
  ASSERT_FALSE(read);
  EXPECT_TRUE(read.error().text().starts_with("--config bucket_cap_mb_list.2: leads through /engine/config/bucket_cap_mb_list, which is [1.5,2]")) << read.error().text();
}

TEST(an_override, that_is_no_key_and_value_is_refused) {
  const auto refused = [](const std::string& text, const std::string& message) {
    const auto read = config_override(text);
    ASSERT_FALSE(read) << text;
    EXPECT_NE(read.error().text().find(message), std::string::npos) << read.error().text();
    EXPECT_TRUE(read.error().where.starts_with("--config"));
  };
  refused("stage", "expected KEY=VALUE");
  refused("=2", "expected KEY=VALUE");
  refused("", "expected KEY=VALUE");
  for (const char* key : {".stage=1", "a..b=1", "a.=1", "/=1", "/a//b=1", "/a~2=1", "/a/=1"}) refused(key, "has the key \"");
  refused("a={\"b\": ", "--config a: is no JSON value: line 1, column 7: is not JSON");
  refused("a=\"b", "is no JSON value");
  refused("a={\"b\": 1, \"b\": 2}", "appears twice");
  refused("a=1e999", "no double can represent");
  refused("a=" + std::string(100, '['), "is nested too deeply");
  refused("a=\xff", "is not UTF-8");
  refused("\xff=1", "is not UTF-8");
}

TEST(an_override, is_told_beside_what_is_wrong_with_the_file) {
  std::vector<InputError> all;
  const auto document = testing::small_document_with("/world_size", 0);
  ASSERT_FALSE(read_scenario(document.dump(), ".", {set("zero_optimization.stage=7")}, &all));
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(std::set<std::string>({all[0].where, all[1].where}), (std::set<std::string>{"--config zero_optimization.stage", "/world_size"}));
}

}  // namespace
}  // namespace gradledger
