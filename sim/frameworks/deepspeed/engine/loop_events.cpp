// What a loop does to param.grad itself, past the framework: it multiplies, clips or reduces whatever it finds there. A wrapper that keeps
// gradients elsewhere shows it nothing, and nothing happens.
#include "sim/engine/clipping.h"
#include "sim/engine/loop_norm.h"
#include "sim/frameworks/deepspeed/engine/deepspeed_engine.h"

namespace gradledger {
void DeepSpeedEngine::scale_gradients(const events::ScaleGradients& event, ProgramWriter& w) {
  for (const std::uint32_t p : learned())
    if (grad_[p].defined()) w.multiply(grad_[p].slice, event.by[rank()]);
}

// clip_grad_norm_: norms of all that this rank has, squares added up over a group where the loop does that.
void DeepSpeedEngine::clip_gradients(const events::ClipGradients& event, ProgramWriter& w) {
  if (linear()) return;  // the ledger asks where contributions go, not how long they are
  Tensor squared = tensors_.allocate(w, "loop_norm_squared", Dtype::float64, 1), norm = tensors_.allocate(w, "loop_norm", Dtype::float32, 1);
  Tensor of_one = tensors_.allocate(w, "loop_norm of a parameter", Dtype::float32, 1);
  const ProcessGroup group = group_named(scenario(), context_.timeline->contract.groups, context_.timeline->group_names[event.over], rank());
  loop_norm_dtype_ = emit_loop_norm(w, tensors_, grad_, {norm.slice, of_one.slice, squared.slice}, group);
  w.report(StepFact::loop_norm, norm.slice, 1.0);
  loop_max_norm_ = event.max_norm;
  read(w, loop_norm_known, norm.slice);
  tensors_.drop(w, squared);
  tensors_.drop(w, of_one);
  tensors_.drop(w, norm);
}

void DeepSpeedEngine::clip_by(double norm, ProgramWriter& w) {
  const double factor = loop_clip_factor(norm, loop_max_norm_, loop_norm_dtype_);
  for (const std::uint32_t p : learned())
    if (grad_[p].defined()) w.multiply(grad_[p].slice, factor);
}

// A gradient that some rank of the group lacks leaves the others waiting, as it does in PyTorch.
void DeepSpeedEngine::all_reduce(const events::AllReduce& event, ProgramWriter& w) {
  const ProcessGroup group = group_named(scenario(), context_.timeline->contract.groups, context_.timeline->group_names[event.over], rank());
  if (group.size() == 1) return;
  const bool averages_over_it = group.id == peers().id && sequence_ranks() == 1;
  const std::uint32_t communicator = averages_over_it ? worlds_communicator() : group.communicator;
  if (!event.of_gradients) {
    Tensor scalar = tensors_.allocate(w, "loop_scalar", Dtype::float32, 1);
    w.fill(scalar.slice, 1.0);
    w.collective({.purpose = Purpose::user, .group = group.id, .communicator = communicator, .input = scalar.slice, .output = scalar.slice});
    tensors_.drop(w, scalar);
    return;
  }
  for (const std::uint32_t p : learned()) {
    if (!grad_[p].defined() || numel(p) == 0) continue;
    w.collective({.purpose = Purpose::user, .group = group.id, .communicator = communicator, .input = grad_[p].slice, .output = grad_[p].slice});
    if (event.mean) w.divide(grad_[p].slice, group.size());
  }
}

// engine.allreduce_gradients(): what a backward at a boundary ends with.
void DeepSpeedEngine::finalize(ProgramWriter& w) {
  mirror_ = boundary_for_optimizer();
  if (!reduces_every_backward() && !boundary()) return;
  require_bucket();
  reduce_gradients(w);
}

}  // namespace gradledger
