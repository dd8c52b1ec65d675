// A recorded loop as the scenario that `loops` expands it into.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/base/result.h"
#include "sim/scenario/scenario.h"
#include "conformance/loops/run.h"

namespace gradledger::conform::loop_runs {

// What a micro-batch of the loop is expected to be.
struct Step {
  std::uint32_t epoch = 0, batch = 0;  // of the epoch
  bool syncs = false;                  // a step() follows
  std::uint32_t event = 0;             // of its backward
};

struct Expressed {
  std::string refusal;  // of the package, in its own words; else what follows
  Scenario scenario;
  std::vector<Step> micro_batches;
  std::vector<std::uint32_t> updates;                     // events of step()
  std::vector<std::vector<std::optional<double>>> items;  // [rank][micro-batch]: num_items_in_batch
};

// The sample that a rank gets: ranks take them in turn, and the last ones begin again where the data do not divide.
std::uint32_t sample_of(const Run& run, std::uint32_t rank, std::uint32_t batch);

// Errors: the run cannot be expressed (where = conform::inexpressible), or there is no such loop.
Result<Expressed> express(const Run& run);

}  // namespace gradledger::conform::loop_runs
