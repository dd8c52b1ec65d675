// The norm that a loop's clip_grad_norm_ takes: that of each gradient, rounded, and the norm of these in fp32.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "sim/engine/tensors.h"
#include "sim/program/program.h"
#include "sim/scenario/layout.h"

namespace gradledger {

// norm += one * one, for number i of `count` norms. PyTorch's kernel takes four squares at a time, rounds them, and adds them up in order; what is left is
// added without rounding the square before. norm, one: fp32; squared: fp64.
inline void add_square(ProgramWriter& w, Slice one, std::size_t i, std::size_t count, Slice norm, Slice squared) {
  if (i < count / 4 * 4) {
    w.fill(squared, 0.0);
    w.squared_norm(squared, one);
    w.copy(one, squared);
    return w.accumulate(norm, one);
  }
  w.copy(squared, norm);
  w.squared_norm(squared, one);
  w.copy(norm, squared);
}

// norm, of_one: fp32; squared: fp64. A loop that takes it over a group adds up the squares of its ranks' norms.
inline void emit_loop_norm(ProgramWriter& w, const std::vector<Tensor>& gradients, Slice norm, Slice of_one, Slice squared, const ProcessGroup& over) {
  const auto count = static_cast<std::size_t>(std::count_if(gradients.begin(), gradients.end(), [](const Tensor& t) { return t.defined(); }));
  std::size_t number = 0;
  w.fill(norm, 0.0);
  for (const Tensor& gradient : gradients) {
    if (!gradient.defined()) continue;
    w.fill(squared, 0.0);
    w.squared_norm(squared, gradient.slice);
    w.copy(of_one, squared);
    w.square_root(of_one);
    add_square(w, of_one, number++, count, norm, squared);
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
