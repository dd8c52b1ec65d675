// The known defects of fully_shard that a release has repaired.
#pragma once

#include <span>

#include "sim/scenario/catalogue.h"

namespace gradledger::torch::fully_shard {

std::span<const Entry> catalogue();

}  // namespace gradledger::torch::fully_shard
