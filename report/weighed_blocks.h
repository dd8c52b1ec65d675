// Contributions with weights, many at a time: those of a run of true size are tens of thousands, and few weights are all that they have.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/scenario/predicate.h"

namespace gradledger::report {

struct Weighed {
  Contribution contribution;
  double expected = 0, observed = 0;
  bool misplaced = false, open = false;
};

// Ranks first_rank to last_rank, each with its micro-batches first_micro_batch to last_micro_batch, ends included: the weights of `weighed` are those of all.
struct WeighedBlock {
  std::uint32_t last_rank = 0, last_micro_batch = 0;
  Weighed weighed;  // of the first rank and micro-batch
};

// Every contribution of `all` is in one block, and none else is. They are fewest where `all` is in the order of micro-batches, and of ranks within each.
std::vector<WeighedBlock> blocks_of(const std::vector<Weighed>& all);

}  // namespace gradledger::report
