// The norm that a loop's clip_grad_norm_ takes: that of each gradient, rounded, and the norm of these. It is computed in fp32, and where gradients have
// 16 bits so has every norm, rounded behind each operation.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "sim/engine/tensors.h"
#include "sim/program/program.h"
#include "sim/scenario/layout.h"

namespace gradledger {

struct NormScalars {
  Slice norm, of_one, squared;  // fp32, fp32, fp64
};

// That torch.stack gives norms: the gradients' own, and fp32 of several, or where there is none.
inline Dtype dtype_of_norms(const ProgramWriter& w, const std::vector<Tensor>& gradients) {
  std::optional<Dtype> out;
  for (const Tensor& gradient : gradients) {
    if (!gradient.defined()) continue;
    const Dtype own = w.declaration(gradient.slice.buffer).dtype;
    out = !out || *out == own ? own : Dtype::float32;
  }
  return out.value_or(Dtype::float32);
}

// Numbers in fp32, each to the nearest that the dtype has.
inline void round_norms(ProgramWriter& w, TensorTable& tensors, Slice norms, Dtype dtype) {
  if (dtype == Dtype::float32 || norms.numel == 0) return;
  Tensor rounded = tensors.allocate(w, "rounded_norms", dtype, norms.numel);
  w.copy(rounded.slice, norms);
  w.copy(norms, rounded.slice);
  tensors.drop(w, rounded);
}

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

// The norm of one gradient. rounds: to its dtype.
inline void emit_norm_of_one(ProgramWriter& w, TensorTable& tensors, Slice gradient, Slice norm, Slice squared, bool rounds) {
  w.fill(squared, 0.0);
  if (gradient.numel > 0) w.squared_norm(squared, gradient);
  w.copy(norm, squared);
  w.square_root(norm);
  if (rounds) round_norms(w, tensors, norm, w.declaration(gradient.buffer).dtype);
}

// The norm of all. rounds: each norm to the dtype of its gradient, and that of all to dtype_of_norms(); else fp32 stays, whatever gradients are.
inline void emit_norm(ProgramWriter& w, TensorTable& tensors, const std::vector<Tensor>& gradients, const NormScalars& s, bool rounds) {
  std::size_t count = 0, number = 0;
  for (const Tensor& gradient : gradients) count += gradient.defined();
  w.fill(s.norm, 0.0);
  for (const Tensor& gradient : gradients) {
    if (!gradient.defined()) continue;
    emit_norm_of_one(w, tensors, gradient.slice, s.of_one, s.squared, rounds);
    add_square(w, s.of_one, number++, count, s.norm, s.squared);
  }
  w.square_root(s.norm);
  if (rounds) round_norms(w, tensors, s.norm, dtype_of_norms(w, gradients));
}

// Norms of what each rank has become those of what all of them have together: squares are added up, in the dtype.
inline void emit_norms_over(ProgramWriter& w, TensorTable& tensors, Slice norms, Slice squared, Dtype dtype, const ProcessGroup& over) {
  for (std::uint32_t i = 0; i < norms.numel; ++i) {
    w.fill(squared, 0.0);
    w.squared_norm(squared, norms.part(i, 1));
    w.copy(norms.part(i, 1), squared);
  }
  if (dtype == Dtype::float32) {
    w.collective({.purpose = Purpose::user, .group = over.id, .input = norms, .output = norms});
  } else {
    Tensor sent = tensors.allocate(w, "rounded_norms", dtype, norms.numel);
    w.copy(sent.slice, norms);
    w.collective({.purpose = Purpose::user, .group = over.id, .input = sent.slice, .output = sent.slice});
    w.copy(norms, sent.slice);
    tensors.drop(w, sent);
  }
  for (std::uint32_t i = 0; i < norms.numel; ++i) w.square_root(norms.part(i, 1));
  round_norms(w, tensors, norms, dtype);
}

// PyTorch's function. A loop that takes the norm over a group adds up the squares of its ranks' norms. Returns the dtype of the norm.
inline Dtype emit_loop_norm(ProgramWriter& w, TensorTable& tensors, const std::vector<Tensor>& gradients, const NormScalars& s, const ProcessGroup& over) {
  const Dtype dtype = dtype_of_norms(w, gradients);
  emit_norm(w, tensors, gradients, s, true);
  if (over.size() > 1) emit_norms_over(w, tensors, s.norm, s.squared, dtype, over);
  return dtype;
}

}  // namespace gradledger
