// The names of dtypes: one table, which files, schema and page have too.
#include "sim/numeric/dtype_names.h"

#include <set>

#include <gtest/gtest.h>

#include "tests/scenario/documents.h"

namespace gradledger {
namespace {

using testing::json;

std::set<std::string> names_of(Dtype dtype) {
  const DtypeNames& row = dtype_names[static_cast<std::size_t>(dtype)];
  std::set<std::string> out{std::string(name_of(dtype)), std::string(row.torch), "torch." + std::string(row.torch)};
  if (!row.others[0].empty()) out.insert({std::string(row.others[0]), "torch." + std::string(row.others[0])});
  if (!row.others[1].empty()) out.insert(std::string(row.others[1]));
  return out;
}

TEST(dtype_names, are_each_of_one_dtype) {
  for (int i = 0; i < dtype_count; ++i) {
    const auto dtype = static_cast<Dtype>(i);
    EXPECT_EQ(dtype_names[static_cast<std::size_t>(i)].dtype, dtype) << "rows follow the enumeration";
    for (const std::string& name : names_of(dtype)) EXPECT_EQ(dtype_named(name), dtype) << name;
  }
  for (const char* other : {"", "torch.", "torch", "torch.fp32", "torch.bfp16", "BF16", "bf16 ", "float8"}) EXPECT_EQ(dtype_named(other), std::nullopt) << other;
  EXPECT_EQ(gradient_dtype_of("double"), std::nullopt);
  EXPECT_EQ(floating_dtype_named("double"), Dtype::float64);
  EXPECT_EQ(floating_dtype_named("int32"), std::nullopt);
}

TEST(dtype_names, are_those_of_the_schema) {
  std::set<json> names;
  for (const Dtype dtype : {Dtype::float32, Dtype::bfloat16, Dtype::float16})
    for (const std::string& name : names_of(dtype)) names.insert(name);
  const auto values = [](const char* pointer) {
    const json& rule = scenario_schema().at(json::json_pointer(pointer))["enum"];
    return std::set<json>(rule.begin(), rule.end());
  };
  EXPECT_EQ(values("/properties/model_dtype"), names);
  names.insert(nullptr);
  EXPECT_EQ(values("/definitions/deepspeed_config/properties/communication_data_type"), names);
  EXPECT_EQ(values("/definitions/deepspeed_config/properties/seq_parallel_communication_data_type"), names);
  EXPECT_EQ(values("/definitions/deepspeed_config/properties/data_types/properties/grad_accum_dtype"), names);
}

TEST(dtype_names, are_written_as_ours) {
  auto document = testing::small_document_with("/model_dtype", "torch.bfloat16");
  document["engine"]["config"]["communication_data_type"] = "half";
  document["engine"]["config"]["data_types"] = {{"grad_accum_dtype", "float"}};
  const auto read = testing::read(document);
  ASSERT_TRUE(read) << read.error().text();
  EXPECT_EQ(read->model_dtype, Dtype::bfloat16);
  const auto written = to_json(*read);
  EXPECT_EQ(written["model_dtype"], "bf16");
  EXPECT_EQ(written["engine"]["config"]["communication_data_type"], "fp16");
  EXPECT_EQ(written["engine"]["config"]["data_types"]["grad_accum_dtype"], "fp32");
}

TEST(dtype_names, of_a_framework_without_an_engine_reach_its_driver_as_ours) {
  const auto document = json::parse(R"({"name": "s", "world_size": 2, "parameters": [{"name": "w", "numel": 8}], "script": [{"backward": {}}, {"step": {}}],
    "engine": {"framework": "fsdp2", "config": {"mixed_precision": {"param_dtype": "torch.bfloat16", "reduce_dtype": "float32"}}}})");
  const auto read = testing::read(document);
  ASSERT_TRUE(read) << read.error().text();
  EXPECT_EQ(json::parse(read->engine.config.json_text())["mixed_precision"], (json{{"param_dtype", "bf16"}, {"reduce_dtype", "fp32"}}));
  auto wrong = document;
  wrong["engine"]["config"]["mixed_precision"] = {{"param_dtypes", "bf16"}};
  testing::expect_refused(wrong, "/engine/config/mixed_precision/param_dtypes", "did you mean \"param_dtype\"?");
}

TEST(dtype_names, that_are_none_get_the_three_that_are_written_out) {
  testing::expect_refused(testing::small_document_with("/model_dtype", "bfloat61"), "/model_dtype", "expected one of \"fp32\", \"bf16\", \"fp16\" (dtype of weights");
  testing::expect_refused(testing::small_document_with("/model_dtype", "bfloat61"), "/model_dtype", "did you mean \"bfloat16\"?");
}

}  // namespace
}  // namespace gradledger
