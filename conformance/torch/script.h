// A recorded run of DistributedDataParallel as a scenario.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/frameworks/torch/ddp/config.h"
#include "sim/scenario/scenario.h"
#include "conformance/torch/run.h"

namespace gradledger::conform::torch {

struct Expressed {
  Scenario scenario;
  ::gradledger::torch::DdpConfig config;
  // How many operations are judged, by rank: those before one in which a peer is gone.
  std::vector<std::size_t> judged;
  // The event that stands for an operation, by rank and operation.
  std::vector<std::vector<std::uint32_t>> events;
};

// Errors: where = inexpressible, and why; else an operation that is malformed.
Result<Expressed> express(const Run& run);

}  // namespace gradledger::conform::torch
