// The corpus by the device executor: every rank's streams are threads, kernels the functors of the GPU, collectives those of a library
// with NCCL's interface. Every record must be the host executor's, bit for bit.
#include <filesystem>

#include "tests/gpu/ranks/options.h"
#include "tests/gpu/ranks/standin.h"
#include "tests/numeric/operands.h"
#include "verbs/compare.h"
#include "verbs/scenario_files.h"

namespace gradledger::testing {
namespace {

struct Parity {
  std::uint32_t compared = 0, racing = 0, left_out = 0;
};

// As gradledger gate --compare host,gpu does.
void compare(const std::filesystem::path& path, const verbs::Options& options, Parity& parity) {
  const auto loaded = verbs::load(path, options, verbs::Use::gate);
  ASSERT_TRUE(loaded || loaded.error().unavailable) << loaded.error().text();
  if (!loaded || (*loaded)->scenario.expect.accounting_only || (*loaded)->scenario.numel() > 20'000) {
    ++parity.left_out;
    return;
  }
  const verbs::Compared compared = verbs::compare_producers(**loaded, options);
  if (compared.races) {
    ++parity.racing;
    return;
  }
  ASSERT_FALSE(compared.difference) << path << ": " << verbs::text_of(compared, **loaded, options);
  EXPECT_GT(compared.records, 0u);
  EXPECT_GE(compared.runs, 2u) << path;
  ++parity.compared;
}

class corpus_on_the_standin : public ::testing::TestWithParam<std::size_t> {
 public:
  static constexpr std::size_t shards = 8;
};

TEST_P(corpus_on_the_standin, reports_what_the_host_reports_bit_for_bit) {
  const auto files = verbs::scenario_files({std::string(GRADLEDGER_SOURCE_DIR) + "/scenarios"});
  ASSERT_TRUE(files);
  const std::uint64_t kernels = StandinDevice::kernels();
  const auto devices = thread_devices();
  Parity parity;
  const std::size_t step = sanitized ? 3 * shards : shards;  // sanitizers look at every third
  for (std::size_t i = GetParam(); i < files->size(); i += step) compare((*files)[i], options_for(*devices), parity);
  EXPECT_GT(parity.compared, sanitized ? 13u : 40u) << parity.racing << " race, " << parity.left_out << " are left out";
  EXPECT_GT(StandinDevice::kernels(), kernels);
}

INSTANTIATE_TEST_SUITE_P(shard, corpus_on_the_standin, ::testing::Range(std::size_t{0}, corpus_on_the_standin::shards));

}  // namespace
}  // namespace gradledger::testing
