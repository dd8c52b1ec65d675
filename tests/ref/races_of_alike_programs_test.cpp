// Races as ranks whose programs are alike share the search for them, and as each rank's whole program shows them: scripts of the corpus and drawn ones.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <tuple>
#include <vector>

#include "search/draw/generator.h"
#include "sim/frameworks/framework.h"
#include "sim/load.h"
#include "sim/producers/producers.h"
#include "sim/scenario/parse.h"
#include "tests/support/no_gradients.h"
#include "tests/support/sanitized.h"

namespace gradledger::testing {
namespace {

namespace fs = std::filesystem;

using RaceInWords = std::tuple<std::uint32_t, std::uint32_t, std::string, std::uint64_t, std::uint64_t, std::string, std::uint32_t, std::string, std::uint32_t>;

class Races final : public TraceSink {
 public:
  void race(const RaceRecord& r) override { said.emplace_back(r.rank, r.event, r.buffer, r.begin, r.end, r.first.operation, r.first.number, r.second.operation, r.second.number); }
  std::vector<RaceInWords> said;
};

std::vector<RaceInWords> races_of(const Scenario& scenario, bool shared) {
  const Timeline timeline = make_timeline(scenario).value();
  RunOptions options;
  options.linear = options.weights = options.check_streams = true;
  options.once = shared;
  Races races;
  make_producer(scenario, timeline)->run(NoGradients(), options, races);
  return races.said;
}

TEST(races_of_alike_programs, of_the_corpus_are_those_of_each_rank) {
  std::size_t compared = 0, racing = 0;
  for (const char* folder : {"catalogue", "streams", "zoo", "fsdp2", "live", "layouts"})
    for (const fs::directory_entry& entry : fs::directory_iterator(fs::path(GRADLEDGER_SOURCE_DIR) / "scenarios" / folder)) {
      if (entry.path().extension() != ".json" || (sanitized && std::hash<std::string>{}(entry.path().filename().string()) % 8 != 0)) continue;
      const Scenario scenario = load_scenario(entry.path()).value();
      if (scenario.expect.accounting_only) continue;
      const std::vector<RaceInWords> expected = races_of(scenario, false);
      ASSERT_EQ(races_of(scenario, true), expected) << entry.path();
      ++compared;
      racing += !expected.empty();
    }
  EXPECT_GT(compared, sanitized ? 20u : 200u);
  EXPECT_GT(racing, sanitized ? 0u : 10u);
}

TEST(races_of_alike_programs, of_drawn_scripts_are_those_of_each_rank) {
  for (const char* name : {"deepspeed", "ddp", "fsdp1", "fsdp2", "megatron"}) {
    const Framework* framework = framework_named(name);
    ASSERT_NE(framework, nullptr);
    search::Profile profile;
    for (const Variant& variant : framework->search_space()->variants()) profile.variants.push_back(&variant);
    for (std::uint64_t number = 0; number < (sanitized ? 10 : 100); ++number) {
      const Scenario scenario = search::draw(profile, 41, number);
      ASSERT_EQ(races_of(scenario, true), races_of(scenario, false)) << name << ", case " << number << ": " << to_json(scenario).dump();
    }
  }
}

}  // namespace
}  // namespace gradledger::testing
