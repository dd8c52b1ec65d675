// Where a run of DeepSpeed's windows end, and what its losses are divided by, while it goes on: both can be changed on the way, which no scenario says.
#pragma once

#include <cstdint>
#include <optional>

#include "sim/base/rational.h"
#include "sim/scenario/contract.h"

namespace gradledger::conform {

// The boundary flag as set_gradient_accumulation_boundary() leaves it: true, false, or None, which goes by the counter of step() calls, whose length
// set_train_batch_size() changes. A scenario has the first two and a length for all of it: where a run needs the others, the flag is set to what the
// counter says, before each operation that asks for it.
class RecordedWindow {
 public:
  explicit RecordedWindow(const BoundaryRule& rule) : rule_(rule), steps_(rule.calls) {}

  void set(std::optional<bool> boundary) {
    followed_ = followed_ || (!boundary && override_);
    override_ = boundary;
  }
  void set_steps(std::uint32_t steps) {
    followed_ = followed_ || steps != steps_;
    steps_ = steps;
  }
  // One call of step(); whether it closes a window.
  bool step() {
    const bool closes = !rule_.counted || override_.value_or(by_counter());
    ++calls_;
    return closes;
  }

  // What the flag is to be set to for the next operation; nothing where it is that already.
  std::optional<bool> to_set() {
    if (!rule_.counted || !followed_) return std::nullopt;
    const bool wanted = override_.value_or(by_counter());
    if (shown_ == wanted) return std::nullopt;
    shown_ = wanted;
    return wanted;
  }
  // The loop itself has set it in the script.
  void shows(bool boundary) { shown_ = boundary; }

  // What a loss is multiplied by, so that the division by the configured length becomes one by the present one.
  Rational weight() const { return Rational(rule_.calls) / Rational(steps_); }

 private:
  bool by_counter() const { return (calls_ + 1) % steps_ == 0; }

  BoundaryRule rule_;
  std::uint32_t steps_;
  std::uint64_t calls_ = 0;
  std::optional<bool> override_, shown_;
  bool followed_ = false;  // the counter no longer decides as the scenario has it
};

}  // namespace gradledger::conform
