#include "sim/frameworks/torch/loop_step.h"

namespace gradledger::torch {

void end_scaled_step(GradScaler& scaler, bool found_inf, ProgramWriter& w, const std::function<void()>& optimizer_step) {
  w.report(StepFact::skipped, found_inf ? 1.0 : 0.0);
  if (found_inf) w.report(StepFact::updated, 0.0);
  else optimizer_step();
  scaler.update(found_inf);
  w.report(StepFact::loss_scale, scaler.scale());
}

void low_precision_sgd(TensorTable& tensors, ProgramWriter& w, const std::string& name, Dtype dtype, Slice weights, Slice gradient, double learning_rate) {
  Tensor delta = tensors.allocate(w, name + ".delta", dtype, gradient.numel);
  w.copy(delta.slice, gradient);
  w.multiply(delta.slice, -learning_rate);
  w.accumulate(weights, delta.slice);
  tensors.drop(w, delta);
}

void observe_applied_inside(ProgramWriter& w, const std::string& parameter, const ViewPiece& gradient) {
  w.observe(w.view(parameter + ".grad in its hook", {gradient}), Role::applied_gradient, 1.0, false);
}

void all_reduce_scalar(TensorTable& tensors, ProgramWriter& w, const ProcessGroup& group) {
  Tensor scalar = tensors.allocate(w, "loop_scalar", Dtype::float32, 1);
  w.fill(scalar.slice, 1.0);
  w.collective({.purpose = Purpose::user, .group = group.id, .input = scalar.slice, .output = scalar.slice});
  tensors.drop(w, scalar);
}

}  // namespace gradledger::torch
