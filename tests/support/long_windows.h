// Scripts with windows of many micro-batches, whose rounds repeat.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include <nlohmann/json.hpp>

#include "sim/load.h"
#include "sim/scenario/parse.h"
#include "sim/scenario/timeline.h"

namespace gradledger::testing {

// What was drawn, with windows of many micro-batches before it, between and behind. Nothing where it is no script any more.
inline std::optional<Scenario> with_long_windows(const Scenario& drawn, std::uint64_t number) {
  using nlohmann::json;
  json document = json::parse(to_json(drawn).dump());
  const std::uint64_t steps = number % 3, times = 7 + number % 11;
  json round = json::array();
  for (std::uint64_t b = 0; b < 1 + number % 2; ++b) round.push_back({{"backward", json::object()}});
  if (steps > 0) round.push_back({{"step", json::object()}});
  const json rounds = {{"repeat", {{"times", times}, {"of", round}}}};
  json script = json::array();
  if (number % 4 != 0) script.push_back(rounds);
  for (const json& item : document["script"]) script.push_back(item);
  script.push_back(rounds);
  script.push_back({{"step", json::object()}});
  script.push_back(rounds);
  document["script"] = script;
  json& config = document["engine"]["config"];
  if (config.contains("gradient_accumulation_steps") && number % 5 != 0) config["gradient_accumulation_steps"] = number % 5 == 1 ? 1 : times + number % 5;
  if (config.contains("train_batch_size")) config.erase("train_batch_size");
  const auto read = read_scenario(document.dump(), ".");
  if (!read || admission_error(*read) || !make_timeline(*read)) return std::nullopt;
  return *read;
}

// One window of DeepSpeed's, at a stage.
inline Scenario one_long_window(nlohmann::json parameters, int stage, std::uint32_t world, std::uint32_t micro_batches, bool offload) {
  using nlohmann::json;
  json document = {{"name", "s"}, {"world_size", world}, {"parameters", std::move(parameters)}, {"model_dtype", "bf16"}};
  document["engine"] = {{"framework", "deepspeed"}, {"as_of", "head"}, {"optimizer", {{"type", "AdamW"}, {"lr", 0.001}}}};
  json zero = {{"stage", stage}};
  if (offload) zero["offload_optimizer"] = {{"device", "cpu"}};
  document["engine"]["config"] = {{"gradient_accumulation_steps", micro_batches}, {"bf16", {{"enabled", true}}}, {"zero_optimization", zero}};
  document["script"] = {{{"repeat", {{"times", micro_batches}, {"of", {{{"backward", json::object()}}, {{"step", json::object()}}}}}}}};
  return read_scenario(document.dump(), ".").value();
}

}  // namespace gradledger::testing
