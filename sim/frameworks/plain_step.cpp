#include "sim/frameworks/plain_step.h"

namespace gradledger {

void low_precision_sgd(TensorTable& tensors, ProgramWriter& w, const std::string& name, Dtype dtype, Slice weights, Slice gradient, double learning_rate) {
  // A gradient in another dtype is added in fp32, which both are promoted to.
  const Dtype promoted = w.declaration(gradient.buffer).dtype == dtype ? dtype : Dtype::float32;
  Tensor delta = tensors.allocate(w, name + ".delta", promoted, gradient.numel);
  w.copy(delta.slice, gradient);
  w.multiply(delta.slice, -learning_rate);
  w.accumulate(weights, delta.slice);
  tensors.drop(w, delta);
}

void all_reduce_scalar(TensorTable& tensors, ProgramWriter& w, const ProcessGroup& group) {
  Tensor scalar = tensors.allocate(w, "loop_scalar", Dtype::float32, 1);
  w.fill(scalar.slice, 1.0);
  w.collective({.purpose = Purpose::user, .group = group.id, .input = scalar.slice, .output = scalar.slice});
  tensors.drop(w, scalar);
}

}  // namespace gradledger
