// Sizes of batches in DeepSpeed's configuration, and the data-parallel ranks that they are split over.
#include <gtest/gtest.h>

#include "sim/frameworks/deepspeed/settings.h"
#include "tests/scenario/documents.h"

namespace gradledger {
namespace {

using testing::expect_refused;
using testing::json;
using testing::small_document;

TEST(bad_config, with_batch_sizes_that_do_not_fit_is_refused) {
  const auto with = [](const json& sizes) {
    json document = small_document();
    document["engine"]["config"].erase("gradient_accumulation_steps");
    document["engine"]["config"].update(sizes);
    return document;
  };
  const std::string where = "/engine/config/train_batch_size";
  expect_refused(with({{"train_batch_size", 13}, {"train_micro_batch_size_per_gpu", 3}, {"gradient_accumulation_steps", 2}}), where,
                 "is 13; expected 12 = train_micro_batch_size_per_gpu x gradient_accumulation_steps x data-parallel ranks");
  expect_refused(with({{"train_batch_size", 13}, {"train_micro_batch_size_per_gpu", 3}}), where, "expected a multiple of 6 = train_micro_batch_size_per_gpu x data-parallel ranks");
  expect_refused(with({{"train_batch_size", 13}, {"gradient_accumulation_steps", 3}}), where, "expected a multiple of 6 = gradient_accumulation_steps x data-parallel ranks");
  expect_refused(with({{"train_batch_size", 13}}), where, "expected a multiple of 2 = gradient_accumulation_steps x data-parallel ranks");
  expect_refused(with({{"train_batch_size", 1u << 20}, {"train_micro_batch_size_per_gpu", 1}}), where, "expected at most 65536 accumulation steps of 2");
  expect_refused(with({{"train_batch_size", 2}, {"train_micro_batch_size_per_gpu", 1ull << 40}, {"gradient_accumulation_steps", 65536}}), where, "expected 144115188075855872 = ");
  const auto settled = testing::read(with({{"train_batch_size", 48}, {"train_micro_batch_size_per_gpu", 3}}));
  ASSERT_TRUE(settled) << settled.error().text();
  EXPECT_EQ(deepspeed_config(*settled).gradient_accumulation_steps, 8u);
}

// What a layout's stages and tensor-parallel ranks share is one micro-batch too. DeepSpeed asks an mpu for the data-parallel ranks; AutoTP has none.
TEST(config, counts_data_parallel_ranks_of_a_layout_in_a_batch) {
  const auto steps = [](const char* dimension, const json& more) {
    json document = small_document();
    document["world_size"] = 4;
    document["parameters"] = {{{"name", "a"}, {"numel", 8}}, {{"name", "b"}, {"numel", 8}}};
    if (std::string(dimension) == "pp") document["parameters"][1]["pipeline_stage"] = 1;
    if (*dimension != 0) document["layout"][dimension] = 2;
    document["engine"]["config"].erase("gradient_accumulation_steps");
    document["engine"]["config"].update({{"train_batch_size", 16}, {"train_micro_batch_size_per_gpu", 2}});
    document["engine"]["config"].update(more);
    const auto scenario = testing::read(document);
    return scenario ? std::to_string(deepspeed_config(*scenario).gradient_accumulation_steps) : scenario.error().text();
  };
  EXPECT_EQ(steps("tp", json::object()), "4");
  EXPECT_EQ(steps("tp", {{"tensor_parallel", {{"autotp_size", 0}}}}), "4");
  EXPECT_EQ(steps("tp", {{"tensor_parallel", {{"autotp_size", 2}}}}), "2");
  EXPECT_EQ(steps("", {{"tensor_parallel", {{"autotp_size", 2}}}, {"train_batch_size", 8}}),
            R"(/engine/config/tensor_parallel/autotp_size: is 2, and tp of /layout is 1; expected "layout": {"tp": 2})");
  EXPECT_EQ(steps("pp", json::object()), "4");
  EXPECT_EQ(steps("ep", json::object()), "2");
}

// What the pipeline's stages and the ranks of a sequence share is one micro-batch; experts lie on ranks that have one each.
TEST(config, counts_data_parallel_ranks_in_a_batch) {
  const auto steps = [](const char* degree, std::uint32_t size) {
    json document = small_document();
    document["world_size"] = 4;
    document["parameters"] = {{{"name", "a"}, {"numel", 8}}, {{"name", "b"}, {"numel", 8}}};
    if (std::string(degree) == "pipeline_stages") document["parameters"][1]["pipeline_stage"] = size - 1;
    document["engine"][degree] = size;
    document["engine"]["config"].erase("gradient_accumulation_steps");
    document["engine"]["config"].update({{"train_batch_size", 16}, {"train_micro_batch_size_per_gpu", 2}});
    const auto scenario = testing::read(document);
    return scenario ? std::to_string(deepspeed_config(*scenario).gradient_accumulation_steps) : scenario.error().text();
  };
  EXPECT_EQ(steps("pipeline_stages", 1), "2");
  EXPECT_EQ(steps("pipeline_stages", 2), "4");
  EXPECT_EQ(steps("sequence_parallel_size", 2), "4");
  EXPECT_EQ(steps("sequence_parallel_size", 4), "8");
  EXPECT_EQ(steps("expert_parallel_size", 2), "2");
  EXPECT_EQ(steps("sequence_parallel_size", 3), "/engine/sequence_parallel_size: is 3, which does not divide the ranks of a pipeline stage, 4; expected a divisor of it");
}

}  // namespace
}  // namespace gradledger
