// The processes that mpirun started, where this build has MPI: the one place that calls it.
#pragma once

#include <chrono>
#include <memory>

#include "search/sequences/exchange.h"
#include "sim/base/result.h"

namespace gradledger::tool {

bool has_mpi();

// Once in a process. deadline: how long another one may be silent. What it gives throws ProcessesLost where one is for longer, and soon where a signal ends the run and
// somebody does not come any more. Error: this build has no MPI.
Result<std::unique_ptr<search::Exchange>> join_mpi(std::chrono::seconds deadline);

}  // namespace gradledger::tool
