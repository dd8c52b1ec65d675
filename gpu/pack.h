// How n elements are cut into packs of up to 16 bytes with single elements before and after, and which thread serves which.
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

// A pack is as many elements as fill one vector of the largest type; smaller types take a part of a vector. Threads beside each
// other then write bytes beside each other: where one wrote two vectors of the larger type, memory took them at 0.6 of its rate.
template <class... T>
inline constexpr std::size_t pack_width = [] {
  std::size_t largest = 1;
  ((largest = sizeof(T) > largest ? sizeof(T) : largest), ...);
  return vector_bytes / largest;
}();

// Whether a pack of `width` elements can be read or written there in one access.
template <std::size_t width, class T>
GRADLEDGER_HD inline bool is_pack_aligned(const volatile T* address) {
  return reinterpret_cast<std::uintptr_t>(address) % sizeof(Pack<T, width>) == 0;
}

// What a thread moves in one access of that many bytes.
template <std::size_t bytes>
struct Vector;
#ifdef __CUDA_ARCH__
template <>
struct Vector<16> {
  using Type = uint4;
};
template <>
struct Vector<8> {
  using Type = uint2;
};
template <>
struct Vector<4> {
  using Type = std::uint32_t;
};
template <>
struct Vector<2> {
  using Type = std::uint16_t;
};
#endif

// `width` elements at `from`. More than one are read in one access: `from` is then aligned to their size.
template <std::size_t width, class T>
GRADLEDGER_HD inline Pack<T, width> load(const T* from) {
  Pack<T, width> pack;
  if constexpr (width == 1) {
    pack[0] = *from;
  } else {
    static_assert(sizeof(pack) <= vector_bytes);
#ifdef __CUDA_ARCH__
    const auto vector = *reinterpret_cast<const typename Vector<sizeof(pack)>::Type*>(from);
    memcpy(&pack, &vector, sizeof(pack));
#else
    expects(is_pack_aligned<width>(from), "a pack is read at a multiple of its size");
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
    static_assert(sizeof(pack) <= vector_bytes);
#ifdef __CUDA_ARCH__
    typename Vector<sizeof(pack)>::Type vector;
    memcpy(&vector, &pack, sizeof(pack));
    *reinterpret_cast<typename Vector<sizeof(pack)>::Type*>(to) = vector;
#else
    expects(is_pack_aligned<width>(to), "a pack is written at a multiple of its size");
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

// Packs that a thread loads before it stores the first of them: 64 bytes in flight, so that memory is kept busy. A pack that is read as less
// than a vector is written as a whole one, a grid away from the thread's next: on an H100 eight of them came to 0.66 of a copy's rate, four to 0.76, two to 0.93.
template <class Operation>
inline constexpr std::size_t packs_in_flight = [] {
  constexpr std::size_t bytes = sizeof(Fetched<Operation>);
  if (std::is_empty_v<Fetched<Operation>>) return std::size_t{1};
  return bytes < vector_bytes ? 2 : (63 + bytes) / bytes;
}();

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
