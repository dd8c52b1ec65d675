// Which of a framework's switches a piece of work looks at: what it comes to holds for every state of the framework that agrees in those.
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include "sim/base/contract.h"

namespace gradledger {

// Where the value of a switch stands in History::values_of(). What was never placed counts as all of them.
using SwitchPlace = std::uint16_t;
inline constexpr SwitchPlace unplaced = std::numeric_limits<SwitchPlace>::max();

class SwitchReads {
 public:
  static constexpr std::size_t places_max = 512;

  void add(SwitchPlace place) {
    if (place < places_max) places_.set(place);
    else everything_ = true;
  }
  void add(const SwitchReads& other) {
    places_ |= other.places_;
    everything_ |= other.everything_;
  }

  bool contains(SwitchPlace place) const { return everything_ || (place < places_max && places_[place]); }
  bool everything() const { return everything_; }
  // Whether two states of one framework have the same values in all that was read.
  bool agree(std::span<const std::uint8_t> one, std::span<const std::uint8_t> other) const {
    expects(one.size() == other.size() && one.size() <= places_max, "values of two frameworks are compared, or there are more than are watched");
    for (std::size_t place = 0; place < one.size(); ++place)
      if ((everything_ || places_[place]) && one[place] != other[place]) return false;
    return true;
  }

 private:
  std::bitset<places_max> places_;
  bool everything_ = false;
};

// Records what its thread reads while it lives. What lies within another records for that one too.
class SwitchRecorder {
 public:
  SwitchRecorder() : outer_(active_) { active_ = this; }
  ~SwitchRecorder() {
    active_ = outer_;
    if (outer_) outer_->reads_.add(reads_);
  }
  SwitchRecorder(const SwitchRecorder&) = delete;
  SwitchRecorder& operator=(const SwitchRecorder&) = delete;

  static void note(SwitchPlace place) {
    if (active_) active_->reads_.add(place);
  }
  // What was read for an outcome that is used again.
  static void note(const SwitchReads& reads) {
    if (active_) active_->reads_.add(reads);
  }
  const SwitchReads& reads() const { return reads_; }

 private:
  inline static constinit thread_local SwitchRecorder* active_ = nullptr;
  SwitchRecorder* outer_;
  SwitchReads reads_;
};

// A field of a Behaviour. Who takes its value has read it; a copy, or a comparison of two of them, reads nothing.
template <class T>
class Watched {
 public:
  constexpr Watched() = default;
  constexpr explicit Watched(T value) : value_(value) {}
  constexpr Watched& operator=(T value) {
    value_ = value;
    return *this;
  }

  operator T() const {
    SwitchRecorder::note(place_);
    return value_;
  }
  friend bool operator==(const Watched& of, T value) { return static_cast<T>(of) == value; }

  // For lists and texts, which decide nothing.
  constexpr T unnoted() const { return value_; }
  void place_at(std::size_t place) {
    expects(place < SwitchReads::places_max, "more switches than are watched");
    place_ = static_cast<SwitchPlace>(place);
  }
  friend constexpr bool operator==(const Watched& one, const Watched& other) { return one.value_ == other.value_; }

 private:
  T value_{};
  SwitchPlace place_ = unplaced;
};

}  // namespace gradledger
