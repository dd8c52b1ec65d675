// What DeepSpeed documents of a training loop, as rules, and where a script leaves them. A script that breaks one loses gradients in a
// framework without defects too, or may. Written from the documentation, not from the engines.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "sim/scenario/scenario.h"
#include "sim/scenario/timeline.h"

namespace gradledger::deepspeed {

enum class Use : std::uint8_t {
  one_backward_a_step, step_behind_backward, single_boundary, boundary_before_step, same_script, zero_grad_behind_step, set_gradient_behind_boundary, direct_backward, refused_call,
  coalesced_backwards, divisor, average, window, weights, own_gradients, checkpoint,
};

struct UseRule {
  Use use;
  std::string_view id;    // "one-backward-a-step"
  std::string_view says;  // a sentence
};

std::span<const UseRule> use_rules();

struct Misuse {
  const UseRule* rule = nullptr;
  std::uint32_t event = 0, step = 0;
};

struct UseReport {
  std::vector<Misuse> misuses;  // in the order of events, a rule once a window
  std::uint64_t state = 0;      // two scripts with the same one, in the same window, go on to break the same rules by the same events
};

// Precondition: the scenario was admitted, and the timeline is its own.
UseReport use_of(const Scenario& scenario, const Timeline& timeline);

}  // namespace gradledger::deepspeed
