// Sums over the tree of numeric::squared_norm, as a program of one block in phases with a barrier between them. On the GPU the
// barrier is __syncthreads; on the CPU every thread of a phase runs before the next phase, in any order.
#pragma once

#include <cstddef>

#include "gpu/pack.h"
#include "sim/numeric/scalar.h"

namespace gradledger::gpu {

inline constexpr std::size_t chunk_lanes = 256;
inline constexpr std::size_t lane_terms = 16;
inline constexpr std::size_t chunk_elements = chunk_lanes * lane_terms;

// Terms of a sum: fetch(i) loads what term i is made of, take(i, fetched) makes it. Loads of many terms go before the first take.
template <class T>
struct Squares {
  using Fetched = T;
  const T* source;

  GRADLEDGER_HD T fetch(std::size_t i) const { return source[i]; }
  GRADLEDGER_HD double take(std::size_t, T element) const {
    const double x = static_cast<double>(numeric::widen(element));
    return x * x;
  }
};

struct PartialSums {
  using Fetched = double;
  const double* source;

  GRADLEDGER_HD double fetch(std::size_t i) const { return source[i]; }
  GRADLEDGER_HD double take(std::size_t, double sum) const { return sum; }
};

// sums[block] = the tree sum of the block's chunk of the n terms. Launched with one block a chunk, chunk_lanes threads each.
template <class Terms>
struct ChunkSum {
  static constexpr std::size_t threads = chunk_lanes;
  static constexpr unsigned halvings = 8;
  static constexpr unsigned phases = 1 + halvings + 1;
  static_assert(chunk_lanes == std::size_t{1} << halvings);

  struct Shared {
    double lane[chunk_lanes];
  };

  Terms terms;
  std::size_t n;
  double* sums;

  // Phase 0 sums each lane in order, phases 1 to 8 halve the lanes, the last stores what is left.
  // A lane without elements adds +0 to a sum that is never -0: it changes nothing.
  GRADLEDGER_HD void run(unsigned phase, std::size_t block, std::size_t thread, Shared& shared) const {
    if (phase == 0) {
      shared.lane[thread] = lane_sum(block * chunk_elements, thread);
    } else if (phase <= halvings) {
      const std::size_t half = chunk_lanes >> phase;
      if (thread < half) shared.lane[thread] += shared.lane[thread + half];
    } else if (thread == 0) {
      sums[block] = shared.lane[0];
    }
  }

 private:
  GRADLEDGER_HD double lane_sum(std::size_t first, std::size_t lane) const {
    double sum = 0;
    if (first + chunk_elements <= n) {
      typename Terms::Fetched fetched[lane_terms];
      GRADLEDGER_UNROLL
      for (std::size_t k = 0; k < lane_terms; ++k) fetched[k] = terms.fetch(first + k * chunk_lanes + lane);
      GRADLEDGER_UNROLL
      for (std::size_t k = 0; k < lane_terms; ++k) sum += terms.take(first + k * chunk_lanes + lane, fetched[k]);
    } else {
      for (std::size_t i = first + lane; i < n; i += chunk_lanes) sum += terms.take(i, terms.fetch(i));
    }
    return sum;
  }
};

// At least one chunk, so that the sum of nothing is stored as well.
constexpr std::size_t chunks_of(std::size_t n) { return n == 0 ? 1 : (n + chunk_elements - 1) / chunk_elements; }

// Doubles that the levels of a sum over n terms need between them.
constexpr std::size_t workspace_numel(std::size_t n) {
  std::size_t numel = 0;
  for (std::size_t count = chunks_of(n); count > 1; count = chunks_of(count)) numel += count;
  return numel;
}

// Chunk sums, then the same tree over them, until one is left in *result. run(program, blocks) runs one level after the other.
template <class Terms, class Run>
void tree_sum(Run&& run, const Terms& terms, std::size_t n, double* result, double* workspace) {
  std::size_t count = chunks_of(n);
  double* sums = count == 1 ? result : workspace;
  run(ChunkSum<Terms>{terms, n, sums}, count);
  while (count > 1) {
    const std::size_t next = chunks_of(count);
    double* next_sums = next == 1 ? result : sums + count;
    run(ChunkSum<PartialSums>{{sums}, count, next_sums}, next);
    sums = next_sums;
    count = next;
  }
}

}  // namespace gradledger::gpu
