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
FrameworkError not_on_the_root(const char* method);
// A reduction that finalize_backward(async_op=True) began is in the way of what comes next.
FrameworkError not_waited_for(const char* what);
// set_manual_backward_finalization between a backward and what ends it.
FrameworkError mode_of_an_open_backward();
// finalize_backward: of a loop that did not ask for it, behind a backward that raised, with sums that wait for other replicas or would.
FrameworkError ends_by_itself();
FrameworkError ended_too_early();
FrameworkError ended_with_a_partial_sum(std::uint32_t module);
FrameworkError ended_without_an_all_reduce(std::uint32_t module);
// wait() behind reset_iter_state.
FrameworkError invalidated_handle();
// clip_grad_norm_ of DTensors over both dimensions of a mesh, and of such over one.
FrameworkError gradients_of_two_meshes(bool first_over_both, std::uint32_t data_parallel, std::uint32_t tensor_parallel);
// A forward uses weights of a module that is not gathered.
FrameworkError used_while_sharded();

}  // namespace gradledger::torch::fully_shard
