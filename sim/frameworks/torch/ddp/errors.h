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
// A forward before the loop ended the backward before it.
FrameworkError unfinalized_backward();
// require_manual_backward_finalization between a forward and the end of its backward.
FrameworkError required_too_late();
// finalize_backward: of a loop that did not ask for it, where no reduction is open, and before all gradients are there.
FrameworkError finalization_not_required();
FrameworkError nothing_to_finalize();
FrameworkError buckets_not_ready(std::size_t next, std::size_t buckets);
FrameworkError graph_has_changed();
FrameworkError not_a_bucket_view();
FrameworkError marked_twice(std::uint32_t parameter);
FrameworkError undefined_and_used();
FrameworkError gradient_of_another_dtype(Dtype expected, Dtype found);
// An assertion in the C++ of the reducer: "CONDITION INTERNAL ASSERT FAILED at "reducer.cpp":LINE".
FrameworkError internal_assert(const std::string& condition, std::uint32_t line);

}  // namespace gradledger::torch
