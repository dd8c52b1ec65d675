// Events in the JSON of scenarios, for whoever writes a script.
#pragma once

#include <cstdint>
#include <string>

#include <nlohmann/json.hpp>

namespace gradledger::loops {

inline nlohmann::json backward(const std::string& weight = "", bool scaled_by_engine = true) {
  nlohmann::json arguments = nlohmann::json::object();
  if (!weight.empty()) arguments["weight"] = weight;
  if (!scaled_by_engine) arguments["scale_wrt_gas"] = false;
  return {{"backward", arguments}};
}

inline nlohmann::json backwards(std::uint32_t number, const std::string& weight = "") {
  nlohmann::json out = backward(weight);
  if (number > 1) out["backward"]["micro_batches"] = number;
  return out;
}

inline nlohmann::json step(bool update = false) { return {{"step", update ? nlohmann::json{{"update", true}} : nlohmann::json::object()}}; }
inline nlohmann::json boundary(bool value) { return {{"set_boundary", value}}; }
inline nlohmann::json zero_grad() { return {{"zero_grad", "engine"}}; }
inline nlohmann::json no_sync(nlohmann::json events) { return {{"no_sync", std::move(events)}}; }

}  // namespace gradledger::loops
