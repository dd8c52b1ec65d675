// What DeepSpeed documents of a training loop, as rules, and where a script leaves them. A script that breaks one loses gradients in a
// framework without defects too, or may. Written from the documentation, not from the engines.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "sim/frameworks/framework.h"

namespace gradledger::deepspeed {

enum class Use : std::uint8_t {
  one_backward_a_step,
  step_behind_backward,
  single_boundary,
  boundary_before_step,
  same_script,
  zero_grad_behind_step,
  set_gradient_behind_boundary,
  direct_backward,
  refused_call,
  coalesced_backwards,
  divisor,
  average,
  window,
  weights,
  own_gradients,
  checkpoint,
};

// By the number of their Use.
std::span<const UseRule> use_rules();

// Precondition: the scenario was admitted, and the timeline is its own.
UseReport use_of(const Scenario& scenario, const Timeline& timeline);

}  // namespace gradledger::deepspeed
