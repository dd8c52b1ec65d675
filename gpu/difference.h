// The comparison of sim/numeric/difference.h. A block joins what its threads found; its first thread joins that with the result
// by integer atomics. Sums, minima and maxima of integers: no order matters.
#pragma once

#include "gpu/atomics.h"
#include "gpu/elementwise.h"
#include "gpu/segments.h"
#include "sim/numeric/difference.h"
#include "sim/numeric/dispatch_dtype.h"

namespace gradledger::gpu {

using numeric::Difference;

template <class T>
GRADLEDGER_HD inline bool same_bits(T x, T y) {
  if constexpr (std::is_same_v<T, float>) return numeric::bits_of(x) == numeric::bits_of(y);
  else return x.bits == y.bits;
}

// |x - y| as fp64 bits; the canonical NaN's, which are more than an infinity's, where it is NaN.
GRADLEDGER_HD inline std::uint64_t distance_bits(double x, double y) {
  const double signed_distance = x - y;
  if (signed_distance != signed_distance) return 0x7FF8000000000000u;
  std::uint64_t bits;
  memcpy(&bits, &signed_distance, sizeof(bits));
  return bits & 0x7FFFFFFFFFFFFFFFu;
}

// What one thread finds, in its registers.
template <class T, bool bounded>
struct Comparison {
  static constexpr bool is_bounded = bounded;
  static constexpr std::size_t width = bounded ? pack_width<T, float> : pack_width<T>;
  const T* a;
  const T* b;
  const float* bounds;
  Difference* found;

  bool aligned_at(std::size_t i) const { return is_pack_aligned<width>(a + i) && is_pack_aligned<width>(b + i) && (!bounded || is_pack_aligned<width>(bounds + i)); }

  template <std::size_t w>
  struct Unbounded {
    Pack<T, w> a, b;
  };
  template <std::size_t w>
  struct Bounded {
    Pack<T, w> a, b;
    Pack<float, w> bounds;
  };
  template <std::size_t w>
  GRADLEDGER_HD auto fetch(std::size_t i) const {
    if constexpr (bounded) return Bounded<w>{load<w>(a + i), load<w>(b + i), load<w>(bounds + i)};
    else return Unbounded<w>{load<w>(a + i), load<w>(b + i)};
  }
  template <std::size_t w, class Fetched>
  GRADLEDGER_HD void finish(std::size_t i, const Fetched& in) const {
    GRADLEDGER_UNROLL
    for (std::size_t k = 0; k < w; ++k) {
      if (same_bits(in.a[k], in.b[k])) continue;
      const std::uint64_t distance = distance_bits(static_cast<double>(numeric::widen(in.a[k])), static_cast<double>(numeric::widen(in.b[k])));
      ++found->differing;
      if (i + k < found->first) found->first = i + k;
      if (distance > found->distance) found->distance = distance;
      if constexpr (bounded) found->beyond += !is_within(distance, in.bounds[k]);
    }
  }

 private:
  GRADLEDGER_HD static bool is_within(std::uint64_t distance, float bound) {
    double value;
    memcpy(&value, &distance, sizeof(value));
    return value <= static_cast<double>(bound);
  }
};

// Joins into *result, which holds a Difference already. Launched with one block a piece.
template <class T, bool bounded>
struct Compare {
  static constexpr std::size_t threads = threads_per_block;
  static constexpr unsigned halvings = 8;
  static constexpr unsigned phases = 1 + halvings + 1;
  static_assert(threads == std::size_t{1} << halvings);

  struct Shared {
    Difference lane[threads];
  };

  const T* a;
  const T* b;
  const float* bounds;
  Packing packing;
  Difference* result;

  GRADLEDGER_HD void run(unsigned phase, std::size_t block, std::size_t thread, Shared& shared) const {
    if (phase == 0) {
      Difference found{0, Difference::none, 0, 0};
      run_piece(Comparison<T, bounded>{a, b, bounds, &found}, packing, block, thread);
      shared.lane[thread] = found;
    } else if (phase <= halvings) {
      const std::size_t half = threads >> phase;
      if (thread < half) join(shared.lane[thread], shared.lane[thread + half]);
    } else if (thread == 0 && shared.lane[0].differing > 0) {
      publish(shared.lane[0]);
    }
  }

 private:
  GRADLEDGER_HD static void join(Difference& into, const Difference& from) {
    into.differing += from.differing;
    if (from.first < into.first) into.first = from.first;
    if (from.distance > into.distance) into.distance = from.distance;
    into.beyond += from.beyond;
  }
  GRADLEDGER_HD void publish(const Difference& found) const {
    atomic_add(&result->differing, found.differing);
    atomic_min(&result->first, found.first);
    atomic_max(&result->distance, found.distance);
    if constexpr (bounded) atomic_add(&result->beyond, found.beyond);
  }
};

// *result = no difference. Launched with n = 1.
struct StartDifference {
  static constexpr std::size_t width = 1;
  Difference* result;

  bool aligned_at(std::size_t) const { return true; }
  template <std::size_t w>
  GRADLEDGER_HD Nothing fetch(std::size_t) const {
    return {};
  }
  template <std::size_t w>
  GRADLEDGER_HD void finish(std::size_t, Nothing) const {
    *result = {0, Difference::none, 0, 0};
  }
};

namespace dispatch {

// run(operation, n) and run_phased(program, blocks) as elsewhere.
template <class Run, class RunPhased>
void difference(Run&& run, RunPhased&& run_phased, Dtype dtype, const void* a, const void* b, const float* bounds, std::size_t n, Difference* result) {
  run(StartDifference{result}, 1);
  if (n == 0) return;
  numeric::with_dtype(dtype, [&](auto t) {
    using T = decltype(t);
    const auto compare = [&](auto comparison) {
      const Packing packing = packing_of(comparison, n);
      run_phased(Compare<T, decltype(comparison)::is_bounded>{comparison.a, comparison.b, comparison.bounds, packing, result}, blocks_of(packing.units));
    };
    const T* left = static_cast<const T*>(a);
    const T* right = static_cast<const T*>(b);
    if (bounds) compare(Comparison<T, true>{left, right, bounds, nullptr});
    else compare(Comparison<T, false>{left, right, nullptr, nullptr});
  });
}

}  // namespace dispatch
}  // namespace gradledger::gpu
