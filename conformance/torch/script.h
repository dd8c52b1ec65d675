// A recorded run of DistributedDataParallel or fully_shard as a scenario.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/scenario/scenario.h"
#include "conformance/torch/run.h"

namespace gradledger::conform::torch {

struct Expressed {
  Scenario scenario;  // with its framework and configuration
  // How many operations are judged, by rank: those before one in which a peer is gone.
  std::vector<std::size_t> judged;
  // The event that stands for an operation, by rank and operation.
  std::vector<std::vector<std::uint32_t>> events;
};

// Whether its losses are scaled.
bool has_scaler(const Run& run);
// Whether a rank waits in vain for another: gloo ends it, or the recorder did.
bool loses_a_peer(const Run& run);

// Errors: where = inexpressible, and why; else an operation that is malformed.
Result<Expressed> express(const Run& run);

}  // namespace gradledger::conform::torch
