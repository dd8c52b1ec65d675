// The factory of producers that run a scenario. Tools and searches name what they need of one here, and nothing else names what runs it.
//
// There is one: virtual ranks under a seeded schedule, which compute on the host or, with `devices`, on GPUs. Producers that run nothing are
// made elsewhere: a recording (conformance/judged) shows what a real run held.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>

#include "sim/execution/collectives.h"
#include "sim/execution/devices.h"
#include "sim/execution/operations.h"
#include "sim/execution/simulation.h"
#include "sim/frameworks/framework.h"
#include "sim/scenario/scenario.h"
#include "sim/scenario/timeline.h"

namespace gradledger {

struct ProducerOptions {
  EngineFactory engines;  // empty: those of the scenario's framework
  CollectiveArithmetic arithmetic = CollectiveArithmetic::nccl_ring;
  Division division = Division::quotient;
  Devices* devices = nullptr;  // that hold the memory and compute, for as long as the producer lives; null: the host
  // Bytes that the operations of all ranks may take: a run throws ProgramsTooLarge after the event that goes beyond.
  std::uint64_t program_bytes_max = std::numeric_limits<std::uint64_t>::max();
};

// Preconditions: the scenario was admitted (sim/load.h) and the timeline is its own; both outlive the producer.
std::unique_ptr<Simulation> make_producer(const Scenario& scenario, const Timeline& timeline, const ProducerOptions& options = {});

}  // namespace gradledger
