// What DistributedDataParallel and GradScaler raise, in PyTorch's words.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/engine/engine.h"
#include "sim/frameworks/torch/ddp/config.h"

namespace gradledger::torch {

// A forward came while the reduction before it was not over. unmarked: parameters that were not marked ready, as the reducer numbers them.
FrameworkError unfinished_reduction(const DdpConfig& config, std::uint32_t rank, const std::vector<std::uint32_t>& unmarked);
FrameworkError graph_has_changed();
FrameworkError not_a_bucket_view();
FrameworkError marked_twice(std::uint32_t parameter);
FrameworkError undefined_and_used();
// An assertion in the C++ of the reducer: "CONDITION INTERNAL ASSERT FAILED at "reducer.cpp":LINE".
FrameworkError internal_assert(const std::string& condition, std::uint32_t line);

}  // namespace gradledger::torch
