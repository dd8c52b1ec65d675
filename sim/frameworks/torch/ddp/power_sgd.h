// What PyTorch documents of PowerSGD: which parameters it compresses, and to how many numbers.
#pragma once

#include <cstdint>
#include <optional>

#include "sim/frameworks/torch/ddp/config.h"
#include "sim/scenario/scenario.h"

namespace gradledger::torch {

// The two factors that travel in place of a matrix.
struct LowRank {
  std::uint64_t p_numel = 0, q_numel = 0;
};

// None where it would not save enough: of a parameter with one dimension at any rate of 1 or more. Precondition: the hook is PowerSGD, and the parameter has elements.
std::optional<LowRank> low_rank_of(const DdpConfig& config, const Parameter& parameter);

}  // namespace gradledger::torch
