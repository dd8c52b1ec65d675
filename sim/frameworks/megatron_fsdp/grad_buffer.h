// The gradients of one parameter group: the buffer that they are summed in, the bucket that a backward fills where the buffer is a shard, and their
// reduction, within a shard and between those outside of it. param_and_grad_buffer.py: DataParallelBuffer and GradReducePipeline.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sim/engine/tensors.h"
#include "sim/frameworks/megatron_fsdp/setup.h"
#include "sim/program/program.h"

namespace gradledger::megatron_fsdp {

class GradBuffer {
 public:
  GradBuffer(std::shared_ptr<const Setup> setup, std::uint32_t group) : setup_(std::move(setup)), group_(group) {}

  void initialise(ProgramWriter& w);  // param_and_grad_buffer.py: _init_each_parameter_group_buffers, at 0.5.1

  // Of the parameter at that place of the group: what autograd made; nothing, in a backward that did not reach it.
  void add(std::size_t at, Slice grad, TensorTable& tensors, ProgramWriter& w);  // megatron_fsdp.py: _grad_acc, at 0.5.1
  void add_nothing(std::size_t at, TensorTable& tensors, ProgramWriter& w);      // megatron_fsdp.py: _grad_acc, at 0.5.1

  bool mark_ready(std::size_t at);  // whether all of the group are
  bool all_ready() const { return ready_count_ == group().parameters.size(); }
  void reduce(TensorTable& tensors, ProgramWriter& w);                        // param_and_grad_buffer.py: _bucket_group_gradient_reduce, at 0.5.1
  void reduce_outside(TensorTable& tensors, ProgramWriter& w);                // param_and_grad_buffer.py: _bucket_group_gradient_reduce, at 0.5.1
  void free_up(TensorTable& tensors, ProgramWriter& w);                       // param_and_grad_buffer.py: free_up_grad_bucket, at 0.5.1
  void reduce_whole_buffer(ProgramWriter& w);                                 // param_and_grad_buffer.py: all_reduce_gradients, reduce_scatter_gradients, at 0.5.1
  void zero(ProgramWriter& w);                                                // param_and_grad_buffer.py: zero_grad, at 0.5.1
  void scale(double factor, ProgramWriter& w) { w.multiply(main_, factor); }  // param_and_grad_buffer.py: scale_gradients, at 0.5.1

  const ParameterGroup& group() const { return setup_->layout.groups[group_]; }
  // What the rank steps of the parameter at that place, in the buffer.
  Slice owned(std::size_t at) const;
  // judged: as far as it holds gradients of the window, and no leftover.
  void observe(double scale, bool judged, ProgramWriter& w) const;  // ours: snapshots

 private:
  const Setup& setup() const { return *setup_; }
  bool distributed() const { return setup().config->shards_gradients() && setup().layout.shard.size() > 1; }
  Slice part_of_rank(Slice whole) const;  // that the reduction within a shard gives to this rank
  std::optional<Dtype> custom_wire(Dtype of_bucket) const;
  Slice bucket(TensorTable& tensors, ProgramWriter& w);  // param_and_grad_buffer.py: fetch_bucket, at 0.5.1
  struct Operator {
    ReduceOp op = ReduceOp::sum;
    double factor = 1.0;
  };
  Operator preprocess(Slice unreduced, ProgramWriter& w) const;                     // param_and_grad_buffer.py: gradient_reduce_preprocessing, at 0.5.1
  void reduce_into_new_memory(Slice from, TensorTable& tensors, ProgramWriter& w);  // param_and_grad_buffer.py: _bucket_group_gradient_reduce, at 0.3.1
  void reduce_in_place(Slice unreduced, bool custom, ProgramWriter& w);             // param_and_grad_buffer.py: _bucket_group_gradient_reduce, at 0.5.1
  void collective(CollectiveKind kind, Operator op, const ProcessGroup& over, Slice input, Slice output, ProgramWriter& w) const;  // ours: one call
  std::string label(const char* buffer) const { return std::string(buffer) + "[" + setup().parameter(group().parameters.front()).name + "]"; }

  std::shared_ptr<const Setup> setup_;
  std::uint32_t group_;
  Slice main_, summed_;  // main_grad_buffer; what a shard sums in: the same, or with outer sharding hfsdp_helper_gbuf
  Tensor bucket_, staging_;
  std::vector<bool> ready_;
  std::size_t ready_count_ = 0;
  bool reduced_ = false, partial_ = false;  // since it was zeroed: by all ranks; by those of a shard alone
};

}  // namespace gradledger::megatron_fsdp
