// One backward of the sum of several losses, of DistributedDataParallel: what autograd adds up first, and when a gradient is whole. That it is PyTorch's order is
// what runs of the driver show, bit for bit.
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <string>

#include <nlohmann/json.hpp>

#include "sim/load.h"
#include "sim/numeric/scalar.h"
#include "sim/producers/producers.h"
#include "sim/scenario/parse.h"

namespace gradledger {
namespace {

// 256, 1 and 1 of three micro-batches: from the last on they are 258 in bf16, and from the first on 256, as 257 is none of its values.
class LargeFirst final : public GradientSource {
 public:
  void gradient(std::uint32_t backward, std::uint32_t, std::uint32_t, std::uint64_t, std::span<double> out) const override {
    for (double& each : out) each = backward == 0 ? 256 : 1;
  }
};

// What rank 0's gradients are behind the backward; of each the first element.
struct FirstElements final : TraceSink {
  void observe(const Observation& o) override {
    if (o.rank != 0 || o.event != 0 || !o.at_end) return;
    numeric::Bf16 first;
    std::memcpy(&first.bits, o.pieces.front().data, sizeof first.bits);
    gradients[std::string(o.buffer)] = numeric::widen(first);
  }
  std::map<std::string, float> gradients;
};

std::map<std::string, float> gradients_of(const nlohmann::json& parameters) {
  const nlohmann::json document = {{"name", "sum"},
                                   {"world_size", 2},
                                   {"parameters", parameters},
                                   {"model_dtype", "bf16"},
                                   {"engine", {{"framework", "ddp"}, {"config", nlohmann::json::object()}, {"optimizer", {{"type", "SGD"}, {"lr", 1}}}}},
                                   {"script", nlohmann::json::array({{{"backward", {{"sum_of", 3}}}}, {{"step", nlohmann::json::object()}}})}};
  const Scenario scenario = read_scenario(document.dump(), ".").value();
  const Timeline timeline = make_timeline(scenario).value();
  FirstElements seen;
  make_producer(scenario, timeline)->run(LargeFirst(), {}, seen);
  return seen.gradients;
}

TEST(ddp_sums_of_losses, are_added_up_from_the_last_forward_on) {
  const nlohmann::json all = {{"name", "w0"}, {"numel", 2}}, first_two = {{"name", "w1"}, {"numel", 3}, {"used_by", "micro_batch < 2"}};
  EXPECT_EQ(gradients_of(nlohmann::json::array({all, first_two})), (std::map<std::string, float>{{"w0.grad", 258}, {"w1.grad", 256}}));
}

}  // namespace
}  // namespace gradledger
