// The gradients of parameters of one module that have a dtype: what autograd leaves in the gathered parameters, and the shard of their average.
// experimental/parameter_group.py: FsdpParameterGroup.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "sim/engine/tensors.h"
#include "sim/frameworks/megatron_fsdp/v2/setup.h"
#include "sim/program/program.h"

namespace gradledger::megatron_fsdp::v2 {

class FsdpParameterGroup {
 public:
  FsdpParameterGroup(std::shared_ptr<const Setup> setup, std::uint32_t group) : setup_(std::move(setup)), group_(group), grads_(this->group().parameters.size()) {}

  void initialise(TensorTable& tensors, ProgramWriter& w);  // parameter_group.py: FsdpParameterGroup.__init__, at 0.6.1

  // Of the parameter at that place of the group.
  void take(std::size_t at, std::uint32_t backward, double factor, TensorTable& tensors, ProgramWriter& w);  // ours: what autograd does
  void reduce(bool is_last_microbatch, TensorTable& tensors, ProgramWriter& w);                              // module.py: _reduce_gradient_groups, at 0.6.1
  void zero_unsharded(bool set_to_none, TensorTable& tensors, ProgramWriter& w);                             // ours: the loop's own code
  void zero_sharded(bool set_to_none, ProgramWriter& w);                                                     // ours: the loop's own code

  const ParameterGroup& group() const { return setup_->layout.groups[group_]; }
  bool has_sharded_grads() const { return installed_; }
  // Between shards they have not been averaged since they were added to.
  bool is_partial() const { return setup_->layout.hybrid && !finalized_; }
  Slice main_grad() const { return main_.slice; }
  // What the rank steps of the parameter at that place, in main_grad.
  Slice owned(std::size_t at) const;
  // judged: as far as it holds gradients of the window, and no leftover.
  void observe(bool judged, ProgramWriter& w) const;  // ours: snapshots

 private:
  void reduce_partial_gradients(Slice partial, bool is_last_microbatch, TensorTable& tensors, ProgramWriter& w);  // parameter_group.py: reduce_partial_gradients, at 0.6.1
  bool waits() const;
  std::string label(const char* buffer) const { return std::string(buffer) + "[" + setup_->parameter(group().parameters.front()).name + "]"; }

  std::shared_ptr<const Setup> setup_;
  std::uint32_t group_;
  Tensor main_;                // main_grad, of which the .grad of sharded parameters are views
  std::vector<Tensor> grads_;  // .grad of gathered parameters
  bool installed_ = false;     // sharded parameters have a .grad
  bool finalized_ = false;     // main_grad has the placements of main_weight
  bool said_last_ = true;      // its last backward was said to be the last of a window
  bool written_ = false;       // main_grad holds more than what its memory held before
};

}  // namespace gradledger::megatron_fsdp::v2
