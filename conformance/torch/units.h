// How a recorded model is cut into modules that are sharded, as PyTorch's two sharding wrappers are recorded alike.
#pragma once

#include <cstdint>
#include <vector>

#include <nlohmann/json.hpp>

#include "sim/scenario/scenario.h"
#include "conformance/fields.h"
#include "conformance/torch/run.h"

namespace gradledger::conform::torch {

inline constexpr std::uint32_t not_wrapped = 0xFFFFFFFFu;

// The number that each of the recorder's units has among the modules that are sharded on their own; units of one group share it.
std::vector<std::uint32_t> number_of_units(const Run& run);

struct Units {
  nlohmann::json wrapped = nlohmann::json::array();  // names of their parameters
  nlohmann::json nested = nlohmann::json::array();   // names of the parameters of others
};
Units units_of(const Run& run);

// [replicate, shard]: neighbours share parameters.
void take_mesh(nlohmann::json& config, const Run& run, Scenario& scenario);
// An operation is its name and what it is given; options come last.
Field last_of(const Field& operation);
// Whether forwards call units of which they use nothing: of all forwards that leave parameters out, or of none. Throws Inexpressible.
bool calls_unused(const Run& run);

}  // namespace gradledger::conform::torch
