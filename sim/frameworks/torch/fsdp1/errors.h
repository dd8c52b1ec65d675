// What FullyShardedDataParallel and what it stands on raise, in PyTorch's words.
#pragma once

#include <cstdint>

#include "sim/engine/engine.h"

namespace gradledger::torch::flat_sharded {

// Where something happens while a backward runs, or before one is over.
FrameworkError not_idle();
FrameworkError not_in_a_pass();
// target += source, of one dimension each, where PyTorch broadcasts neither to the other.
FrameworkError cannot_be_added(std::uint64_t target, std::uint64_t source);
FrameworkError cannot_be_assigned(std::uint64_t gradient, std::uint64_t parameter);
FrameworkError cannot_be_assigned(Dtype gradient, Dtype parameter);
FrameworkError gradient_shape_changes(std::uint64_t expected, std::uint64_t found);
FrameworkError not_sharded(std::uint64_t expected, std::uint64_t found);
FrameworkError not_unsharded(std::uint64_t expected, std::uint64_t found);
FrameworkError no_saved_grad_shard();
FrameworkError not_on_compute_device();
FrameworkError no_gradient();
// A forward uses views of a weight that was changed in place behind them, or such a view is given a gradient; a weight that is cut.
FrameworkError changed_in_place();
FrameworkError cut_weight(std::uint64_t shard, std::uint64_t whole);
FrameworkError given_up_weight();

}  // namespace gradledger::torch::flat_sharded
