// Collectives in exactly the arithmetic of NCCL's Ring/Simple on one channel, for any world size: which rank's value enters in which
// order, and where each rounding falls. Formulas and evidence: docs/arithmetic.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "sim/numeric/dtype.h"
#include "sim/trace/observation.h"

namespace gradledger {

// How the sum over ranks is rounded.
enum class CollectiveArithmetic : std::uint8_t {
  nccl_ring,  // one rounding into the data type at each hop of the ring
  gloo_fp32,  // a CPU backend: the same chains over gloo's chunks, 16-bit data widened to fp32 first and rounded once at the end
  gloo,       // the same chunks, each addition rounded into the data type, an average divided at the end: PyTorch's gloo of today
};

struct CollectiveBuffers {
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
};

// numel: elements of the input (all_gather: of each rank's input; reduce_scatter: of the whole input, a multiple of the world).
// One entry of `ranks` for each rank, in rank order. In place means output == input (all_reduce, reduce), output == input +
// rank x chunk (reduce_scatter) or input == output + rank x chunk (all_gather).
// dtype: float32, bfloat16, float16; float64 and int32 for sums; uint8 for max and for data that only moves. factor: of a premultiplied_sum.
void run_collective(CollectiveKind kind, ReduceOp op, Dtype dtype, std::uint64_t numel, std::uint32_t root, CollectiveArithmetic arithmetic,
                    std::span<const CollectiveBuffers> ranks, double factor = 1);

// The rank at which the chain of element `index` of an all_reduce ends (it starts at owner + 1); numel and world as in the call.
std::uint32_t all_reduce_owner(std::uint64_t index, std::uint64_t numel, std::uint32_t world, Dtype dtype);

}  // namespace gradledger
