// DistributedDataParallel beside tensor-parallel ranks: when autograd comes to DTensors, and how the wrapper orders its buckets by it. That it is PyTorch's order is
// what runs of the driver show, bit for bit: of fp16 on four ranks an order of adding up follows from where a gradient lies in its bucket.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "ref/probes.h"
#include "sim/load.h"
#include "sim/producers/producers.h"
#include "sim/scenario/parse.h"

namespace gradledger {
namespace {

using nlohmann::json;

// What rank 0 reduces, by event: how many elements in which group.
struct Reductions final : TraceSink {
  void collective(const CollectiveRecord& c) override {
    if (c.rank == 0 && c.kind == CollectiveKind::all_reduce && c.purpose == Purpose::gradient) by_event[c.event].emplace_back(c.numel);
  }
  std::map<std::uint32_t, std::vector<std::uint64_t>> by_event;
};

std::map<std::uint32_t, std::vector<std::uint64_t>> reductions_of(const json& script, const json& config) {
  json document = {
      {"name", "layout"}, {"world_size", 4}, {"layout", {{"tp", 2}}}, {"engine", {{"framework", "ddp"}, {"config", config}, {"optimizer", {{"type", "SGD"}, {"lr", 1}}}}}};
  document["parameters"] = json::array({{{"name", "plain"}, {"numel", 4}}, {{"name", "norm"}, {"numel", 12}, {"summed_over", "tp"}}});
  document["script"] = script;
  const Scenario scenario = read_scenario(document.dump(), ".").value();
  const Timeline timeline = make_timeline(scenario).value();
  Reductions seen;
  make_producer(scenario, timeline)->run(*ref::value_source(scenario, timeline, GradientKind::normal, 1), {}, seen);
  return seen.by_event;
}

const json backward = {{"backward", json::object()}}, of_two = {{"backward", {{"sum_of", 2}}}};

TEST(ddp_beside_tensor_parallel_ranks, reduces_a_dtensor_once_over_them_however_many_losses_a_backward_adds_up) {
  const json small_buckets = {{"plain", {"plain"}}, {"bucket_cap_mb", 0.00001}};
  EXPECT_EQ(reductions_of(json::array({of_two}), small_buckets)[0], (std::vector<std::uint64_t>{12, 16})) << "of the DTensor over tensor-parallel ranks, and of both in one bucket";
}

TEST(ddp_beside_tensor_parallel_ranks, rebuilds_its_buckets_with_plain_parameters_first) {
  const json small_buckets = {{"plain", {"plain"}}, {"bucket_cap_mb", 0.00001}};
  auto seen = reductions_of(json::array({backward, backward}), small_buckets);
  EXPECT_EQ(seen[0], (std::vector<std::uint64_t>{12, 16})) << "there is one bucket before";
  EXPECT_EQ(seen[1], (std::vector<std::uint64_t>{4, 12, 12})) << "autograd comes to the plain one first";
}

}  // namespace
}  // namespace gradledger
