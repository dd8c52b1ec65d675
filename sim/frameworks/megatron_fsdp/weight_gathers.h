// The gathers of whole weights around a forward and a backward: which buckets are gathered, ahead of their use or for it, and when they are given up. What a gather
// brings is not modelled. That ranks meet in it is: those that use other modules wait for each other there. param_and_grad_buffer.py: AllGatherPipeline.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "sim/engine/tensors.h"
#include "sim/frameworks/megatron_fsdp/forward_calls.h"
#include "sim/frameworks/megatron_fsdp/setup.h"
#include "sim/program/program.h"

namespace gradledger::megatron_fsdp {

class WeightGathers {
 public:
  explicit WeightGathers(std::shared_ptr<const Setup> setup);

  void begin_micro_batch(bool auto_sync) { outer_too_ = auto_sync || micro_batches_ == 0; }    // megatron_fsdp.py: all_gather_and_wait_parameters_ready, at 0.6.1
  void forward(const std::vector<ModuleCall>& calls, TensorTable& tensors, ProgramWriter& w);  // megatron_fsdp.py: _pre_forward_param_unshard, _post_forward, at 0.6.1
  void begin_backward();                                                                       // megatron_fsdp.py: _root_pre_backward, at 0.6.1
  void pre_backward(const ModuleCall& call, TensorTable& tensors, ProgramWriter& w);           // megatron_fsdp.py: _pre_backward_param_unshard, at 0.6.1
  void post_backward(const ModuleCall& call, TensorTable& tensors, ProgramWriter& w);          // megatron_fsdp.py: _post_backward_release_module, at 0.6.1
  void end_micro_batch() { ++micro_batches_; }                                                 // megatron_fsdp.py: _root_post_backward, at 0.6.1
  void reset(TensorTable& tensors, ProgramWriter& w);                                          // param_and_grad_buffer.py: AllGatherPipeline.reset, at 0.6.1

 private:
  enum class Status : std::uint8_t { empty, communicating, ready };
  // Of a parameter group.
  struct Bucket {
    Status status = Status::empty;
    bool releasable = false;  // by the next gather
    std::uint32_t gathered = no_index;
    Tensor shard, whole;         // what the rank gives, and what it gets
    BufferId before = no_index;  // the memory of the last gather
  };
  enum class Order : std::uint8_t { forward, backward };
  // Buckets [begin, end): those of a unit follow each other, as their parameters do.
  struct Stretch {
    std::size_t begin = 0, end = 0;
  };

  const Setup& setup() const { return *setup_; }
  const ParameterGroup& group(std::size_t bucket) const { return setup().layout.groups[bucket]; }
  std::string label(const char* buffer, std::size_t bucket) const { return std::string(buffer) + "[" + setup().parameter(group(bucket).parameters.front()).name + "]"; }
  bool shards_weights() const { return setup().strategy() == Strategy::optim_grads_params; }
  Stretch buckets_of(std::uint32_t unit) const { return {first_of_unit_[unit], first_of_unit_[unit + 1]}; }
  void mark(std::size_t bucket, bool releasable);
  Stretch with_those_ahead(Stretch wanted, Order order) const;                                            // param_and_grad_buffer.py: next_bucket_id, at 0.6.1
  void unshard(Stretch wanted, bool ahead, Order order, TensorTable& tensors, ProgramWriter& w);          // param_and_grad_buffer.py: all_gather_params, at 0.6.1
  void gather_together(const std::vector<std::size_t>& buckets, TensorTable& tensors, ProgramWriter& w);  // param_and_grad_buffer.py: async_bucket_gather, at 0.6.1
  void gather_outside(std::size_t bucket, ProgramWriter& w) const;                                        // param_and_grad_buffer.py: all_gather_params, at 0.6.1
  void wait(std::size_t bucket, ProgramWriter& w);                                                        // param_and_grad_buffer.py: wait_bucket_ready, at 0.6.1
  void release(std::size_t bucket, TensorTable& tensors, ProgramWriter& w);                               // param_and_grad_buffer.py: release_bucket, at 0.6.1
  void recycle(TensorTable& tensors, ProgramWriter& w);                                                   // param_and_grad_buffer.py: recycle_unused_buckets, at 0.6.1

  std::shared_ptr<const Setup> setup_;
  std::vector<Bucket> buckets_;
  std::size_t releasable_ = 0;              // of them
  std::vector<std::size_t> first_of_unit_;  // by unit, and behind the last
  // Modules that a backward marked for activation recomputation, in whose forwards nothing is gathered ahead. The end of a unit's backward takes the mark away; a unit
  // whose input requires no gradient has no such end, and stays marked in the forwards behind it.
  std::vector<bool> unit_recomputes_, layer_recomputes_;  // by unit, of which 0 is the root; by parameter of no unit, each in a module of its own
  std::uint32_t micro_batches_ = 0;                       // since gradients were synchronised
  bool outer_too_ = true;                                 // a gather begins outside of the shard
};

}  // namespace gradledger::megatron_fsdp
