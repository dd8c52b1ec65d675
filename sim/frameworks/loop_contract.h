// The contract of a loop that owns its loss, its step and its zero_grad, as wrappers of a model leave it: nothing divides by the number of micro-batches,
// and every step() updates.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "sim/scenario/contract.h"
#include "sim/scenario/scenario.h"

namespace gradledger {

// windows_are_stated: of a framework whose windows nobody documents.
Contract loop_contract(const Scenario& scenario, bool windows_are_stated = false);

// Of a wrapper that averages over the data-parallel ranks of a layout: who holds a parameter, what tensor-parallel ranks have of a gradient together, and
// whom an average is over. Behind whatever else decides whether weights are the loop's own.
void lay_out(const Scenario& scenario, Contract& contract);

// By parameter, the ranks that have it by this rule; empty where all have all.
std::vector<std::vector<std::uint32_t>> holders_by(const Scenario& scenario, const std::function<bool(std::uint32_t rank, std::uint32_t parameter)>& has);

}  // namespace gradledger
