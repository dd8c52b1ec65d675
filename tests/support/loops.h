// A loop of two ranks and two parameters around a framework that is named, and the rules of its documentation that a script breaks.
#pragma once

#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "sim/frameworks/framework.h"
#include "sim/load.h"

namespace gradledger::testing {

inline nlohmann::json loop_around(const char* framework, const std::string& script, const std::string& config = "{}") {
  using nlohmann::json;
  return {{"name", framework},
          {"world_size", 2},
          {"parameters", {{{"name", "w0"}, {"numel", 13}}, {{"name", "w1"}, {"numel", 6}}}},
          {"model_dtype", "fp32"},
          {"engine", {{"framework", framework}, {"config", json::parse(config)}}},
          {"script", json::parse(script)}};
}

inline std::vector<std::string> broken_rules(const nlohmann::json& document) {
  const auto scenario = read_scenario(document.dump(), ".");
  EXPECT_TRUE(scenario) << (scenario ? "" : scenario.error().text());
  if (!scenario) return {};
  const auto timeline = make_timeline(*scenario);
  std::vector<std::string> out;
  for (const Misuse& m : framework_of(*scenario).use_of(*scenario, *timeline).misuses) out.emplace_back(m.rule->id);
  return out;
}

}  // namespace gradledger::testing
