// Drawing from a seed. Swarm testing: every case draws which features it may use at all, and how much it likes each of the rest, so that rare
// combinations come up that a fixed mixture would drown.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <span>
#include <string_view>
#include <utility>

#include "sim/base/contract.h"

namespace gradledger {

// Random draws, in the order in which they are asked for. A copy goes on where the original stood.
class Draws {
 public:
  // random: a value whose next() has 64 random bits.
  template <class Random>
  explicit Draws(Random random) : next_([random = std::move(random)]() mutable { return static_cast<std::uint64_t>(random.next()); }) {}

  // From 0 to bound - 1. Precondition: bound > 0.
  std::uint32_t below(std::uint32_t bound) {
    expects(bound > 0, "a draw needs something to draw from");
    return static_cast<std::uint32_t>(((next_() >> 32) * bound) >> 32);
  }
  std::uint32_t between(std::uint32_t least, std::uint32_t most) { return least + below(most - least + 1); }
  bool one_in(std::uint32_t n) { return below(n) == 0; }
  template <class T>
  T of(std::initializer_list<T> values) {
    return values.begin()[below(static_cast<std::uint32_t>(values.size()))];
  }

 private:
  std::function<std::uint64_t()> next_;
};

// What a case may have or not. A framework lists those that its worlds and scripts can have, and adds its own.
enum class Feature : std::uint8_t {
  // worlds, parameters
  many_parameters,
  frozen,
  tied,
  side_stream,
  hooked_outputs,
  used_by_some,
  expert_parallel,
  sequence_parallel,
  pipeline,
  // configuration
  sixteen_bits,
  clipping,
  adam,
  groups,
  // scripts
  boundary_calls,
  counted_windows,
  bare_windows,
  blocks,
  zero_grads,
  own_forwards,
  direct,
  phases,
  uses,
  order,
  unscaled,
  set_gradient,
  overflow,
  some_ranks,
  raises,
  double_steps,
  windows,
  of_the_framework,  // the first of a framework's own
};
inline constexpr std::size_t features_max = 64;

// A framework's own feature, by its number there.
constexpr Feature own_feature(std::uint8_t number) { return static_cast<Feature>(static_cast<std::uint8_t>(Feature::of_the_framework) + number); }

struct FeatureInfo {
  Feature feature;
  std::string_view name;
  bool documented = true;  // false: what is right of it depends on the release, or is the user's own doing
};

// What one case may use.
class Swarm {
 public:
  // Half of the features are off; the weights of the others lie between 1 and 16. Features that are not listed are off.
  Swarm(Draws& draws, std::span<const FeatureInfo> features) {
    for (const FeatureInfo& f : features)
      if (!draws.one_in(2)) at(f.feature) = static_cast<std::uint8_t>(1u << draws.below(5));
  }

  // 0: off.
  std::uint32_t weight(Feature feature) const { return weights_[static_cast<std::size_t>(feature)]; }
  bool on(Feature feature) const { return weight(feature) > 0; }
  void turn_off(Feature feature) { at(feature) = 0; }
  void turn_all_off() { weights_ = {}; }
  // Whether a case uses it in one place where it could: more often where it weighs more.
  bool takes(Feature feature, Draws& draws) const { return on(feature) && draws.below(20) < 3 + weight(feature); }
  // Of what a case has or has not, once: dtypes that differ from each other need several at a time.
  bool often(Feature feature, Draws& draws) const { return on(feature) && (takes(feature, draws) || draws.one_in(2)); }

 private:
  std::uint8_t& at(Feature feature) {
    expects(static_cast<std::size_t>(feature) < features_max, "a feature has a number that there is room for");
    return weights_[static_cast<std::size_t>(feature)];
  }

  std::array<std::uint8_t, features_max> weights_{};
};

}  // namespace gradledger
