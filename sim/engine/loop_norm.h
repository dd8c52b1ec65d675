// The norm that a loop's clip_grad_norm_ takes: that of each gradient, rounded, and the norm of these, one fp32 addition after the other.
#pragma once

#include <vector>

#include "sim/engine/tensors.h"
#include "sim/program/program.h"
#include "sim/scenario/layout.h"

namespace gradledger {

// norm, of_one: fp32; squared: fp64. A loop that takes it over a group adds up the squares of its ranks' norms.
inline void emit_loop_norm(ProgramWriter& w, const std::vector<Tensor>& gradients, Slice norm, Slice of_one, Slice squared, const ProcessGroup& over) {
  w.fill(norm, 0.0);
  for (const Tensor& gradient : gradients) {
    if (!gradient.defined()) continue;
    w.fill(squared, 0.0);
    w.squared_norm(squared, gradient.slice);
    w.copy(of_one, squared);
    w.square_root(of_one);
    w.fill(squared, 0.0);
    w.squared_norm(squared, of_one);
    w.copy(of_one, squared);
    w.accumulate(norm, of_one);
  }
  w.square_root(norm);
  if (over.size() == 1) return;
  w.fill(squared, 0.0);
  w.squared_norm(squared, norm);
  w.copy(norm, squared);
  w.collective({.purpose = Purpose::user, .group = over.id, .input = norm, .output = norm});
  w.square_root(norm);
}

}  // namespace gradledger
