// What a buffer is. The role and the scenario alone fix what must be in it, and when; the table is in docs/architecture.md.
#pragma once

#include <cstdint>
#include <string_view>

namespace gradledger {

enum class Role : std::uint8_t {
  local_accumulator,       // 1/divisor of every own micro-batch of the window so far, or since it was made anew after a reduction
  replicated_accumulator,  // the same, and once it has been reduced the average in its place, on every rank
  reduced_accumulator,     // 1/(world x divisor) of every rank's micro-batches of the window so far
  master_gradient,         // as reduced, in the master dtype, on its way to the step
  applied_gradient,        // what the base optimizer is about to use: the whole window
  parameter,               // model weights after the step; equal bits on every rank that holds an element
  master_parameter,        // the base optimizer's own copy
  first_moment,            // of the base optimizer
  second_moment,
  scratch,  // none of these: shown, not judged
};

constexpr std::string_view name_of(Role role) {
  switch (role) {
    case Role::local_accumulator: return "local";
    case Role::replicated_accumulator: return "replicated";
    case Role::reduced_accumulator: return "reduced";
    case Role::master_gradient: return "master";
    case Role::applied_gradient: return "applied";
    case Role::parameter: return "parameter";
    case Role::master_parameter: return "master parameter";
    case Role::first_moment: return "first moment";
    case Role::second_moment: return "second moment";
    case Role::scratch: return "scratch";
  }
  return "";
}

constexpr bool is_moment(Role role) { return role == Role::first_moment || role == Role::second_moment; }

// Roles that hold gradients and therefore have a ledger.
constexpr bool holds_gradients(Role role) { return role <= Role::applied_gradient; }

}  // namespace gradledger
