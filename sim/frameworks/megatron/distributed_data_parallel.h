// Megatron's DistributedDataParallel: contiguous buffers, hooks of autograd that add to them, and the hooks of forwards that wait for weights.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/engine/tensors.h"
#include "sim/frameworks/megatron/param_and_grad_buffer.h"
#include "sim/frameworks/megatron/planned_buffers.h"

namespace gradledger::megatron {

// What autograd made of a parameter in one backward.
struct AutogradTerm {
  std::uint32_t ordinal = 0;  // of the backward
  double factor = 1;          // that the loss was multiplied by
  bool first_of_call = true;  // its micro-batch is the first of a schedule's call
};

class DistributedDataParallel {
 public:
  explicit DistributedDataParallel(SharedSetup setup) : setup_(std::move(setup)) {}

  void initialise(ProgramWriter& w);  // distributed_data_parallel.py: __init__, at 0.16.1

  void zero_grad_buffer(ProgramWriter& w);                                        // distributed_data_parallel.py: zero_grad_buffer, at 0.16.1
  void enter_no_sync();                                                           // distributed_data_parallel.py: no_sync, at 0.16.1
  void leave_no_sync();                                                           // distributed_data_parallel.py: no_sync, at 0.16.1
  void forward(const std::vector<std::uint32_t>& used, ProgramWriter& w);         // distributed_data_parallel.py: _make_forward_pre_hook, at 0.16.1
  void accumulate(std::uint32_t parameter, AutogradTerm term, ProgramWriter& w);  // distributed_data_parallel.py: _make_backward_post_hook, at 0.16.1
  void start_grad_sync(ProgramWriter& w);                                         // distributed_data_parallel.py: start_grad_sync, at 0.16.1
  void start_grad_sync(std::uint32_t chunk, ProgramWriter& w);                    // distributed_data_parallel.py: start_grad_sync, at 0.16.1
  void start_param_sync(bool force, ProgramWriter& w);                            // distributed_data_parallel.py: start_param_sync, at 0.16.1
  void gather_buffer(bool of_experts, ProgramWriter& w);                          // distrib_optimizer.py: _reset_metadata_and_sync_gather_all_model_params, at 0.8.0
  void scale_gradients(double factor, ProgramWriter& w);                          // distributed_data_parallel.py: scale_gradients, at 0.16.1

  const std::vector<ParamAndGradBuffer>& buffers() const { return buffers_; }
  std::vector<BucketGroup>& groups() { return groups_; }
  const std::vector<BucketGroup>& groups() const { return groups_; }
  // Of a parameter that has one; else a slice of no buffer.
  Slice main_grad(std::uint32_t parameter) const { return main_grads_[parameter]; }
  bool is_reducing(std::uint32_t parameter) const { return groups_[group_of_[parameter]].is_reducing(); }
  // Whether param.grad is main_grad itself, as a step leaves it that works on the weights, up to optimizer.zero_grad() or the next hook.
  void set_grad_is_main_grad(std::uint32_t parameter, bool is) { grad_is_main_grad_[parameter] = is; }
  // Of every parameter that the rank holds, in the model's dtype.
  Slice weights(std::uint32_t parameter) const { return weights_[parameter]; }

 private:
  void add_buffer(const PlannedBuffer& planned, ProgramWriter& w);  // distributed_data_parallel.py: __init__, at 0.16.1
  void add_weights(std::uint32_t parameter, ProgramWriter& w);      // ours: a parameter outside of a buffer
  double scaling_factor(bool of_experts) const;
  void register_grad_ready(std::uint32_t parameter, ProgramWriter& w);                 // ours: where reductions overlap
  void add_by_kernel(std::uint32_t parameter, AutogradTerm term, ProgramWriter& w);    // layers.py: LinearWithGradAccumulationAndAsyncCommunication.backward, at 0.16.1
  void add_in_the_hook(std::uint32_t parameter, AutogradTerm term, ProgramWriter& w);  // distributed_data_parallel.py: _make_backward_post_hook, at 0.16.1

  SharedSetup setup_;
  TensorTable tensors_;
  std::vector<ParamAndGradBuffer> buffers_;
  std::vector<BucketGroup> groups_;
  std::vector<std::uint32_t> group_of_;  // by parameter; no_index: none
  std::vector<std::uint32_t> buffer_of_group_;
  std::vector<std::uint32_t> chunk_of_group_;  // each chunk of the model has a DistributedDataParallel
  std::vector<Slice> main_grads_, weights_;
  std::vector<bool> added_;              // by parameter: its kernel ran since the buffer was cleared
  std::vector<bool> grad_is_main_grad_;  // by parameter
};

}  // namespace gradledger::megatron
