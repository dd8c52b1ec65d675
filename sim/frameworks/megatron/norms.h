// Norms as torch.norm has them, in fp32: by a device, and by a CPU, where recordings were made.
#pragma once

#include <vector>

#include "sim/program/program.h"

namespace gradledger::megatron {

// What a norm is worked out in.
struct NormScratch {
  Slice one;      // fp32
  Slice squared;  // fp64
  Slice lanes;    // fp32, of eight; empty on a device

  void allocate(bool with_lanes, ProgramWriter& w);  // ours: memory of a kernel
};

// norm (fp32) = the norm of the elements of all slices, in their order.
void emit_norm(const NormScratch& scratch, const std::vector<Slice>& slices, Slice norm, ProgramWriter& w);  // functional.py: norm, at torch 2.13
void emit_norm_of_cpu(const NormScratch& scratch, const std::vector<Slice>& slices, Slice norm,
                      ProgramWriter& w);  // ReduceOpsKernel.cpp: norm_kernel_tensor_iterator_impl, at torch 2.13

}  // namespace gradledger::megatron
