// What a judgement holds at its peak, said before anything is allocated.
#pragma once

#include <cstdint>

#include "sim/frameworks/framework.h"
#include "sim/scenario/scenario.h"

namespace gradledger {

// Bytes of elements, from above: the formula of docs/scenario-format.md, "Memory". Precondition: the model dtype is settled.
inline std::uint64_t judgement_bytes(const Scenario& scenario) {
  const std::uint64_t elements = scenario.numel(), world = scenario.world_size;
  // The reference: value and error of the local sum and of what waits for a boundary on each rank, five fields shared, three states alive.
  const std::uint64_t reference = 3 * (world * 4 * 8 + 5 * 8) + world * 3 * 16;
  // A network: weights on both sides, gradients with their errors here, the latest fp32 ones of every rank there, and 16 MiB for what is kept.
  const std::uint64_t network = scenario.gradients.mlp ? elements * (40 + 4 * world) + (16u << 20) : 0;
  return world * framework_of(scenario).rank_bytes(scenario) + elements * reference + network;
}

}  // namespace gradledger
