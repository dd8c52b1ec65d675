// Swarm testing: every case draws which features it may use at all, and how much it likes each of the rest, so that rare combinations come
// up that a fixed mixture would drown.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>

#include <rapidcheck/Random.h>

#include "sim/base/contract.h"

namespace gradledger::search {

enum class Feature : std::uint8_t {
  // worlds, parameters
  many_parameters, frozen, tied, side_stream, hooked_outputs, used_by_some, expert_parallel, sequence_parallel, pipeline,
  // configuration
  sixteen_bits, wide_accumulation, wire_dtype, clipping, adam, groups, small_buckets, no_contiguous, no_reduce_scatter, overlap, predivide, summed, pinned,
  sub_groups, unmanaged, immediate_update,
  // scripts
  boundary_calls, counted_windows, bare_windows, blocks, zero_grads, own_forwards, direct, phases, uses, order, unscaled, set_gradient, overflow, some_ranks,
  raises, double_steps, windows,
};
inline constexpr std::size_t feature_count = static_cast<std::size_t>(Feature::windows) + 1;
std::string_view name_of(Feature feature);

// Random draws, in the order in which they are asked for.
class Draws {
 public:
  explicit Draws(const rc::Random& random) : random_(random) {}

  // From 0 to bound - 1. Precondition: bound > 0.
  std::uint32_t below(std::uint32_t bound) {
    expects(bound > 0, "a draw needs something to draw from");
    return static_cast<std::uint32_t>(((random_.next() >> 32) * bound) >> 32);
  }
  std::uint32_t between(std::uint32_t least, std::uint32_t most) { return least + below(most - least + 1); }
  bool one_in(std::uint32_t n) { return below(n) == 0; }
  template <class T>
  T of(std::initializer_list<T> values) {
    return values.begin()[below(static_cast<std::uint32_t>(values.size()))];
  }

 private:
  rc::Random random_;
};

// What one case may use.
class Swarm {
 public:
  // Half of the features are off; the weights of the others lie between 1 and 16.
  explicit Swarm(Draws& draws);

  // 0: off.
  std::uint32_t weight(Feature feature) const { return weights_[static_cast<std::size_t>(feature)]; }
  bool on(Feature feature) const { return weight(feature) > 0; }
  void turn_off(Feature feature) { weights_[static_cast<std::size_t>(feature)] = 0; }
  // Whether a case uses it in one place where it could: more often where it weighs more.
  bool takes(Feature feature, Draws& draws) const { return on(feature) && draws.below(20) < 3 + weight(feature); }

 private:
  std::array<std::uint8_t, feature_count> weights_{};
};

}  // namespace gradledger::search
