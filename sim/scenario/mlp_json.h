// The network of gradients of kind "mlp" between JSON and Mlp. Precondition: the JSON passed the schema.
#pragma once

#include <vector>

#include <nlohmann/json.hpp>

#include "sim/base/result.h"
#include "sim/scenario/scenario.h"

namespace gradledger {

// `scenario` knows its parameters already. Errors point into /gradients: layers that do not chain or do not have their parameters' sizes,
// parameters that are unknown, left out, used twice, or not on every rank.
Result<Mlp> mlp_from_json(const nlohmann::json& gradients, const Scenario& scenario);

void mlp_to_json(const Mlp& mlp, const std::vector<Parameter>& parameters, nlohmann::ordered_json& gradients);

}  // namespace gradledger
