// Sizes at each limit and one past it; what is past is refused before memory is taken for it.
#include "sim/base/limits.h"

#include <sys/resource.h>

#include <gtest/gtest.h>

#include "sim/scenario/timeline.h"
#include "tests/scenario/documents.h"
#include "tests/support/sanitized.h"

namespace gradledger {
namespace {

using testing::expect_refused;
using testing::json;
using testing::small_document_with;

json list(const std::vector<json>& items) { return items; }
json repeated(std::uint32_t times, const json& items) { return {{"repeat", {{"times", times}, {"of", items}}}}; }

const json backward = {{"backward", json::object()}};
const json step = {{"step", json::object()}};

TEST(limits, on_elements_of_the_model_hold_for_the_sum) {
  const auto with = [](std::uint64_t last) {
    return small_document_with("/parameters", {{{"name", "a"}, {"numel", limits::parameter_numel_max / 2}}, {{"name", "b"}, {"numel", last}}});
  };
  const std::uint64_t room = limits::model_numel_max - limits::parameter_numel_max / 2;
  EXPECT_TRUE(testing::read(with(room)));
  expect_refused(with(room + 1), "/parameters/1/numel", "makes the model larger than " + std::to_string(limits::model_numel_max) + " elements");
}

TEST(limits, on_the_world_and_the_parameters_are_reached) {
  EXPECT_TRUE(testing::read(small_document_with("/world_size", limits::world_size_max)));
  json document = small_document_with("/world_size", 1);
  document["parameters"] = json::array();
  for (std::uint32_t i = 0; i < limits::parameters_max; ++i) document["parameters"].push_back({{"name", std::to_string(i)}, {"numel", 1}});
  EXPECT_TRUE(testing::read(document));
  document["parameters"].push_back({{"name", "more"}, {"numel", 1}});
  expect_refused(document, "/parameters", "is an array of 4097 entries; expected an array of 1 to 4096 entries");
}

TEST(limits, on_events_count_every_rank_and_every_repetition) {
  const std::uint32_t most = limits::events_max / 2;  // of two ranks
  const auto with = [](std::uint32_t outer, std::uint32_t inner, const json& more) {
    json script = list({repeated(outer, list({repeated(inner, list({step}))}))});
    script.insert(script.end(), more.begin(), more.end());
    return small_document_with("/script", script);
  };
  if (!testing::sanitized) {  // which takes it long
    EXPECT_TRUE(testing::read(with(most / 1024, 1024, json::array())));
  }
  expect_refused(with(most / 1024, 1024, list({step})), "/script/1",
                 std::string("the unrolled script has too many events; expected events x ranks of at most ") + std::to_string(limits::events_max));
  if (testing::sanitized) return;
  expect_refused(with(limits::repeat_times_max, limits::repeat_times_max, json::array()), "/script/0/repeat/of/0/repeat/of/0", "too many events");
  const json block = {{"no_sync", json::array()}}, many = {{"backward", {{"micro_batches", limits::micro_batches_max}}}};
  expect_refused(small_document_with("/script", list({repeated(limits::repeat_times_max, list(std::vector<json>(17, block)))})), "/script/0/repeat/of/16", "too many events");
  expect_refused(small_document_with("/script", list({repeated(64, list({many}))})), "/script/0/repeat/of/0", "too many events");
}

TEST(limits, hold_for_repetitions_in_repetitions_as_deep_as_a_file_goes) {
  json script = list({step});
  for (int i = 0; i < 18; ++i) script = list({repeated(limits::repeat_times_max, script)});
  EXPECT_NE(testing::error_of(testing::read(small_document_with("/script", script))).message.find("too many events"), std::string::npos);
}

TEST(limits, on_parameters_named_by_backwards_hold_for_the_unrolled_script) {
  json document = small_document_with("/world_size", 1);
  document["parameters"] = json::array();
  json uses = json::array();
  for (std::uint32_t i = 0; i < limits::parameters_max; ++i) {
    document["parameters"].push_back({{"name", std::to_string(i)}, {"numel", 1}});
    uses.push_back(std::to_string(i));
  }
  const std::uint32_t most = limits::named_uses_max / limits::parameters_max;
  document["script"] = list({repeated(most, list({{{"backward", {{"uses", uses}}}}}))});
  if (!testing::sanitized) {
    EXPECT_TRUE(testing::read(document));
  }
  document["script"] = list({repeated(most + 1, list({{{"backward", {{"uses", uses}}}}}))});
  expect_refused(document, "/script/0/repeat/of/0/backward/uses", "makes the unrolled script name more than 16777216 parameters; expected fewer, or used_by with the parameters");
}

TEST(limits, on_the_length_of_a_condition_hold) {
  std::string condition = "rank == 1";
  while (condition.size() + 14 <= limits::condition_length_max) condition += " and rank == 1";
  condition.resize(limits::condition_length_max, ' ');
  EXPECT_TRUE(testing::read(small_document_with("/parameters/0/used_by", condition)));
  expect_refused(small_document_with("/parameters/0/used_by", condition + " "), "/parameters/0/used_by", "is a condition of 1025 characters; expected at most 1024");
}

TEST(limits, on_counts_in_a_configuration_are_reached) {
  const auto reads = [](const std::string& pointer, const json& value) {
    const auto scenario = testing::read(small_document_with(pointer, value));
    EXPECT_TRUE(scenario) << pointer;
  };
  reads("/engine/config/gradient_accumulation_steps", limits::gradient_accumulation_steps_max);
  reads("/engine/config/train_micro_batch_size_per_gpu", limits::batch_size_max);
  reads("/engine/config/fp16/loss_scale_window", limits::loss_scale_steps_max);
  reads("/engine/config/fp16/hysteresis", limits::loss_scale_steps_max);
  reads("/expect/collectives/gradient/per_step", limits::collectives_max);
  reads("/gradients", {{"kind", "normal"}, {"seed", 9007199254740991}, {"samples_per_micro_batch", 65536}});
}

std::uint64_t kilobytes_peak() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::uint64_t>(usage.ru_maxrss);
}

// A world of 65,536 ranks with a trillion elements would need more than any machine has.
TEST(limits, sizes_that_a_file_only_names_cost_no_memory) {
  json document = small_document_with("/world_size", limits::world_size_max);
  document["parameters"] = {{{"name", "a"}, {"numel", 1ull << 39}}, {{"name", "b"}, {"numel", 1u << 30}}};
  document["script"] = list({backward, step});
  const std::uint64_t before = kilobytes_peak();
  ASSERT_TRUE(testing::read(document));
  document["gradients"] = {{"kind", "values"}, {"micro_batches", list({list({{{"a", list({1})}, {"b", list({1})}}})})}};
  expect_refused(document, "/gradients/micro_batches/0", "expected one for each of 65536");
  document["world_size"] = 1;
  expect_refused(document, "/gradients/micro_batches/0/0/a", "has 1 elements; expected 549755813888");
  // A sanitizer keeps what was freed.
  if (!testing::sanitized) {
    EXPECT_LT(kilobytes_peak() - before, 64u << 10);
  }
}

}  // namespace
}  // namespace gradledger
