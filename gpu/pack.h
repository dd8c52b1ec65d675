// How n elements are cut into 16-byte vectors with single elements before and after, and which thread serves which.
// Compiled by nvcc for the kernels and by g++ for their replay in tests/gpu: the index arithmetic exists once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "sim/base/contract.h"
#include "sim/numeric/scalar.h"

namespace gradledger::gpu {

inline constexpr std::size_t vector_bytes = 16;

// Before loops over what lies in registers: an index that the compiler does not know would move it to memory.
#ifdef __CUDA_ARCH__
#define GRADLEDGER_UNROLL _Pragma("unroll")
#else
#define GRADLEDGER_UNROLL
#endif

// Elements held in registers between a load and a store.
template <class T, std::size_t width>
struct Pack {
  T element[width];

  GRADLEDGER_HD T& operator[](std::size_t k) { return element[k]; }
  GRADLEDGER_HD const T& operator[](std::size_t k) const { return element[k]; }
};

// A pack is as many elements as fill one vector of the smallest type; larger types take several vectors.
template <class... T>
inline constexpr std::size_t pack_width = [] {
  std::size_t smallest = vector_bytes;
  ((smallest = sizeof(T) < smallest ? sizeof(T) : smallest), ...);
  return vector_bytes / smallest;
}();

inline bool is_vector_aligned(const volatile void* address) { return reinterpret_cast<std::uintptr_t>(address) % vector_bytes == 0; }

// `width` elements at `from`. More than one are read in 16-byte accesses: `from` is then aligned to 16 bytes.
template <std::size_t width, class T>
GRADLEDGER_HD inline Pack<T, width> load(const T* from) {
  Pack<T, width> pack;
  if constexpr (width == 1) {
    pack[0] = *from;
  } else {
    static_assert(sizeof(pack) % vector_bytes == 0);
#ifdef __CUDA_ARCH__
    uint4 vectors[sizeof(pack) / vector_bytes];
    for (std::size_t k = 0; k < sizeof(pack) / vector_bytes; ++k) vectors[k] = reinterpret_cast<const uint4*>(from)[k];
    memcpy(&pack, vectors, sizeof(pack));
#else
    expects(is_vector_aligned(from), "a vector is read at a multiple of 16 bytes");
    std::memcpy(&pack, from, sizeof(pack));
#endif
  }
  return pack;
}

// The same for writing.
template <std::size_t width, class T>
GRADLEDGER_HD inline void store(T* to, const Pack<T, width>& pack) {
  if constexpr (width == 1) {
    *to = pack[0];
  } else {
    static_assert(sizeof(pack) % vector_bytes == 0);
#ifdef __CUDA_ARCH__
    uint4 vectors[sizeof(pack) / vector_bytes];
    memcpy(vectors, &pack, sizeof(pack));
    for (std::size_t k = 0; k < sizeof(pack) / vector_bytes; ++k) reinterpret_cast<uint4*>(to)[k] = vectors[k];
#else
    expects(is_vector_aligned(to), "a vector is written at a multiple of 16 bytes");
    std::memcpy(to, &pack, sizeof(pack));
#endif
  }
}

// n elements as `head` single ones, `packs` packs and the rest single. A unit is a pack or a single element; packs come first.
struct Packing {
  std::size_t head = 0;
  std::size_t packs = 0;
  std::size_t units = 0;
};

// The head is the shortest that aligns every array of the operation. Where none does, all elements are single.
template <class Operation>
Packing packing_of(const Operation& operation, std::size_t n) {
  constexpr std::size_t width = Operation::width;
  for (std::size_t head = 0; head < width && head + width <= n; ++head)
    if (operation.aligned_at(head)) {
      const std::size_t packs = (n - head) / width;
      return {head, packs, packs + n - packs * width};
    }
  return {n, 0, n};
}

// A thread's place in the grid.
struct GridPosition {
  std::size_t block, blocks, thread, threads;

  GRADLEDGER_HD std::size_t first() const { return block * threads + thread; }
  GRADLEDGER_HD std::size_t stride() const { return blocks * threads; }
};

template <class Operation>
using Fetched = decltype(std::declval<const Operation&>().template fetch<Operation::width>(std::size_t{0}));

// Packs that a thread loads before it stores the first of them: 64 bytes in flight, so that memory is kept busy.
template <class Operation>
inline constexpr std::size_t packs_in_flight = std::is_empty_v<Fetched<Operation>> ? 1 : (63 + sizeof(Fetched<Operation>)) / sizeof(Fetched<Operation>);

template <std::size_t w, class Operation>
GRADLEDGER_HD inline void apply(const Operation& operation, std::size_t i) {
  operation.template finish<w>(i, operation.template fetch<w>(i));
}

// What one thread does: every stride-th unit below packing.units, which may end before the last pack does.
template <class Operation>
GRADLEDGER_HD inline void run_units(const Operation& operation, const Packing& packing, const GridPosition& position) {
  constexpr std::size_t width = Operation::width;
  constexpr std::size_t batch = packs_in_flight<Operation>;
  const std::size_t stride = position.stride();
  const std::size_t packs = packing.packs < packing.units ? packing.packs : packing.units;
  std::size_t unit = position.first();
  if constexpr (batch > 1) {
    for (; unit + (batch - 1) * stride < packs; unit += batch * stride) {
      Fetched<Operation> fetched[batch];
      GRADLEDGER_UNROLL
      for (std::size_t k = 0; k < batch; ++k) fetched[k] = operation.template fetch<width>(packing.head + (unit + k * stride) * width);
      GRADLEDGER_UNROLL
      for (std::size_t k = 0; k < batch; ++k) operation.template finish<width>(packing.head + (unit + k * stride) * width, fetched[k]);
    }
  }
  for (; unit < packs; unit += stride) apply<width>(operation, packing.head + unit * width);
  for (; unit < packing.units; unit += stride) {
    const std::size_t single = unit - packing.packs;
    apply<1>(operation, single < packing.head ? single : single + packing.packs * width);
  }
}

struct LaunchShape {
  unsigned blocks, threads;
};

inline constexpr unsigned threads_per_block = 256;
// Two full waves of the 132 multiprocessors of an H100 or H200. No bit depends on it.
inline constexpr unsigned blocks_max = 132 * 8 * 2;

// Precondition: units > 0.
inline LaunchShape launch_shape(std::size_t units) {
  const std::size_t wanted = (units + threads_per_block - 1) / threads_per_block;
  return {wanted < blocks_max ? static_cast<unsigned>(wanted) : blocks_max, threads_per_block};
}

}  // namespace gradledger::gpu
