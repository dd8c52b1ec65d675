// What fully_shard raises, in PyTorch's words.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/engine/engine.h"
#include "sim/numeric/dtype.h"

namespace gradledger::torch::fully_shard {

// Gradients that are to be reduced together have several dtypes.
FrameworkError gradients_of_several_dtypes(const std::vector<Dtype>& dtypes);
// target += source, of one dimension each, where PyTorch broadcasts neither to the other.
FrameworkError cannot_be_added(std::uint64_t target, std::uint64_t source);
// A module that was never gathered is asked for its gradient.
FrameworkError never_gathered();
// A parameter without elements among those that are reduced.
FrameworkError empty_gradient();
// reset_iter_state before the first forward.
FrameworkError not_used_yet();
FrameworkError not_on_the_root();
// clip_grad_norm_ of DTensors over both dimensions of a mesh, and of such over one.
FrameworkError gradients_of_two_meshes(bool first_over_both, std::uint32_t data_parallel, std::uint32_t tensor_parallel);
// A forward uses weights of a module that is not gathered.
FrameworkError used_while_sharded();

}  // namespace gradledger::torch::fully_shard
