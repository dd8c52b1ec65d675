// The fuzzers' properties, over stored inputs and over every scenario of the corpus cut off and bent: what a search found once stays found.
#include <filesystem>
#include <fstream>
#include <sstream>

#include <gtest/gtest.h>

#include "tests/fuzz/mutation.h"
#include "tests/fuzz/properties.h"
#include "tests/support/sanitized.h"

namespace gradledger {
namespace {

namespace fs = std::filesystem;

constexpr int bent_each = testing::sanitized ? 1 : 4;                // inputs made of a scenario
constexpr std::size_t bytes_apart = testing::sanitized ? 293 : 13;   // where each breaks off
constexpr std::size_t scenarios_apart = testing::sanitized ? 3 : 1;  // of which inputs are made

// Contents by path, in order.
std::vector<std::pair<fs::path, std::string>> files_below(const fs::path& folder, const std::string& extension) {
  std::vector<std::pair<fs::path, std::string>> out;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file() || entry.path().extension() != extension) continue;
    std::ostringstream text;
    text << std::ifstream(entry.path(), std::ios::binary).rdbuf();
    out.emplace_back(entry.path(), text.str());
  }
  std::sort(out.begin(), out.end());
  return out;
}

const std::vector<std::pair<fs::path, std::string>>& scenarios() {
  static const auto out = files_below(fs::path(GRADLEDGER_SOURCE_DIR) / "scenarios", ".json");
  return out;
}

TEST(fuzzed, stored_scenarios_keep_every_property) {
  const auto inputs = files_below(fs::path(GRADLEDGER_SOURCE_DIR) / "tests/fuzz/corpus/scenario", ".json");
  EXPECT_GT(inputs.size(), 10u);
  for (const auto& [path, text] : inputs) EXPECT_NO_THROW(fuzz::check_scenario(text)) << path;
}

TEST(fuzzed, stored_conditions_keep_every_property) {
  const auto inputs = files_below(fs::path(GRADLEDGER_SOURCE_DIR) / "tests/fuzz/corpus/predicate", ".txt");
  EXPECT_GT(inputs.size(), 10u);
  for (const auto& [path, text] : inputs) EXPECT_NO_THROW(fuzz::check_predicate(text)) << path;
}

TEST(fuzzed, scenarios_keep_every_property) {
  EXPECT_GT(scenarios().size(), 100u);
  for (const auto& [path, text] : scenarios()) EXPECT_NO_THROW(fuzz::check_scenario(text)) << path;
}

TEST(fuzzed, scenarios_that_break_off_anywhere_keep_every_property) {
  std::size_t shift = 0;
  for (const auto& [path, text] : scenarios())
    for (std::size_t end = shift++ % bytes_apart; end < text.size(); end += bytes_apart)
      EXPECT_NO_THROW(fuzz::check_scenario(text.substr(0, end))) << path << " up to byte " << end;
}

TEST(fuzzed, scenarios_with_wrong_bytes_keep_every_property) {
  SplitMix64 random(1);
  for (std::size_t at = 0; at < scenarios().size(); at += scenarios_apart) {
    const auto& [path, text] = scenarios()[at];
    for (int i = 0; i < bent_each; ++i) {
      const std::string bent = fuzz::mutated(text, random);
      EXPECT_NO_THROW(fuzz::check_scenario(bent)) << path << "\n" << bent;
    }
  }
}

TEST(fuzzed, scenarios_with_wrong_values_keep_every_property) {
  SplitMix64 random(2);
  std::size_t made = 0;
  for (std::size_t at = 1; at < scenarios().size(); at += scenarios_apart) {
    const auto& [path, text] = scenarios()[at];
    const nlohmann::json document = nlohmann::json::parse(text);
    for (int i = 0; i < bent_each; ++i) {
      nlohmann::json bent = fuzz::mutated(document, random);
      if (made++ % 2 == 1) bent = fuzz::mutated(std::move(bent), random);
      EXPECT_NO_THROW(fuzz::check_scenario(bent.dump())) << path << "\n" << bent.dump();
    }
  }
}

}  // namespace
}  // namespace gradledger
