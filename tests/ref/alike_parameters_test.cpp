// Which parameters are due the same: those that tensor-parallel ranks add up are not due what each of them has.
#include <gtest/gtest.h>

#include "ref/alike_parameters.h"
#include "tests/support/loops.h"
#include "tests/support/scenarios.h"

namespace gradledger::testing {
namespace {

using nlohmann::json;

// Of four ranks two and two have a model together: a weight in parts, a norm whose gradient is a sum, and two copies.
Scenario shared_model() {
  json document = loop_around("fsdp2", R"([{"backward": {}}, {"step": {}}])");
  document["world_size"] = 4;
  document["layout"] = {{"tp", 2}};
  document["parameters"] = {{{"name", "column"}, {"numel", 4}, {"sharded_over", "tp"}},
                            {{"name", "norm"}, {"numel", 3}, {"summed_over", "tp"}},
                            {{"name", "bias"}, {"numel", 2}},
                            {{"name", "head"}, {"numel", 2}}};
  return read_scenario(document.dump(), ".").value();
}

TEST(parameters_that_are_due_the_same, are_told_from_those_that_are_summed) {
  const Scenario s = shared_model();
  EXPECT_EQ(ref::alike_parameters(s, *make_timeline(s)), (std::vector<std::uint32_t>{0, 1, 2, 3, 3})) << "two parts, the norm, and the copies";
}

TEST(parameters_that_are_due_the_same, leave_no_buffer_out_of_balance_that_is_right) {
  const Scenario s = shared_model();
  const auto timeline = make_timeline(s);
  HostExecutor producer(s, *timeline);
  const ref::Verdict verdict = ref::judge(s, *timeline, producer, {});
  EXPECT_EQ(classes(verdict), std::set<std::string>{}) << sentences(verdict);
  EXPECT_TRUE(verdict.unbalanced.empty()) << verdict.unbalanced.size() << " buffers";
}

}  // namespace
}  // namespace gradledger::testing
