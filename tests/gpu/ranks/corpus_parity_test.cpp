// The corpus by the device executor: every rank's streams are threads, kernels the functors of the GPU, collectives those of a library
// with NCCL's interface. Every record must be the host executor's, bit for bit.
#include <filesystem>

#include "ref/probes.h"
#include "sim/execution/host_executor.h"
#include "sim/load.h"
#include "sim/trace/transcript.h"
#include "tests/gpu/ranks/standin.h"
#include "tools/gradledger/scenario_files.h"

namespace gradledger::testing {
namespace {

struct Parity {
  std::uint32_t compared = 0, racing = 0, larger = 0;
};

class RaceSink final : public TraceSink {
 public:
  void race(const RaceRecord&) override { ++races; }
  std::uint32_t races = 0;
};

// Races apart: there the values are the program's fault, and may differ.
bool is_free_of_races(const Scenario& scenario, const Timeline& timeline, const GradientSource& source) {
  RaceSink sink;
  HostExecutor(scenario, timeline).run(source, {.check_streams = true}, sink);
  return sink.races == 0;
}

void compare(const std::filesystem::path& path, Devices& devices, Parity& parity) {
  const auto scenario = load_scenario(path);
  ASSERT_TRUE(scenario) << scenario.error().text();
  if (scenario->expect.accounting_only) return;
  if (scenario->world_size > gpu::thread_ranks_max || scenario->numel() > 20'000) {
    ++parity.larger;
    return;
  }
  const auto timeline = make_timeline(*scenario);
  ASSERT_TRUE(timeline);
  const auto source = ref::value_source(*scenario, *timeline, GradientKind::normal, 7);
  if (!is_free_of_races(*scenario, *timeline, *source)) {
    ++parity.racing;
    return;
  }
  Transcript host, device;
  const RunSummary one = HostExecutor(*scenario, *timeline).run(*source, {.schedule = {.seed = 3}}, host);
  HostExecutor on_device(*scenario, *timeline);
  on_device.run_on(devices);
  const RunSummary other = on_device.run(*source, {.schedule = {.seed = 3}}, device);
  EXPECT_EQ(one.completed, other.completed);
  EXPECT_EQ(one.bytes_peak, other.bytes_peak);
  const auto difference = first_difference(host, device);
  ASSERT_FALSE(difference) << path << ": event " << difference->event << ", rank " << difference->rank << ", " << difference->what << ": " << difference->one << " on the host, "
                           << difference->other << " on the device";
  EXPECT_EQ(one.value_hash, other.value_hash) << path;
  EXPECT_FALSE(host.entries().empty()) << path;
  ++parity.compared;
}

class corpus_on_the_standin : public ::testing::TestWithParam<std::size_t> {
 public:
  static constexpr std::size_t shards = 8;
};

TEST_P(corpus_on_the_standin, reports_what_the_host_reports_bit_for_bit) {
  const auto files = tool::scenario_files({std::string(GRADLEDGER_SOURCE_DIR) + "/scenarios"});
  ASSERT_TRUE(files);
  const std::uint64_t kernels = StandinDevice::kernels();
  const auto devices = thread_devices();
  Parity parity;
  for (std::size_t i = GetParam(); i < files->size(); i += shards) compare((*files)[i], *devices, parity);
  EXPECT_GT(parity.compared, 40u) << parity.racing << " race, " << parity.larger << " are larger";
  EXPECT_GT(StandinDevice::kernels(), kernels);
}

INSTANTIATE_TEST_SUITE_P(shard, corpus_on_the_standin, ::testing::Range(std::size_t{0}, corpus_on_the_standin::shards));

}  // namespace
}  // namespace gradledger::testing
