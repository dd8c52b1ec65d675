// What of the second version may be otherwise, as switches. The releases 0.6.0 and 0.6.1 hold the same code.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "sim/base/result.h"
#include "sim/frameworks/watched_switch.h"
#include "sim/scenario/scenario.h"

namespace gradledger::megatron_fsdp::v2 {

struct Behaviour {
  Watched<bool> reduces_unfinished{false};          // at the end of a backward, with zeros for what it did not reach
  Watched<bool> raises_unfinished{false};           // a module that a backward left unfinished raises in the next one that reaches it
  Watched<bool> module_zero_grad_of_shards{false};  // model.zero_grad() clears main_grad of modules that stay gathered too
  Watched<bool> reads_grad_comm_dtype{false};       // gradients are reduced in grad_comm_dtype, or else in main_grads_dtype

  bool operator==(const Behaviour&) const = default;
};

struct SwitchInfo {
  std::string_view name;
  Watched<bool> Behaviour::*member;
  std::string_view since, change;  // none: no release has it
  std::string_view says;           // where it is true
  std::string_view until{}, ended_by{};
};

std::span<const SwitchInfo> switches();

inline constexpr std::string_view newest_release = "0.6.1";
inline constexpr std::string_view oldest_release = "0.6.0";

// Of a release that is newer than what is modelled: how it is taken.
std::optional<std::string> release_note(std::string_view as_of);

// Errors: a release before the oldest, no release at all, an unknown switch, a value that is neither "yes" nor "no".
Result<Behaviour> behaviour_of(const AsOf& as_of);

}  // namespace gradledger::megatron_fsdp::v2
