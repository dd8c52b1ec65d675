// What of Megatron-FSDP a release changed, as switches. Each is named with the release that moved it in behaviour.cpp.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "sim/base/result.h"
#include "sim/frameworks/watched_switch.h"
#include "sim/scenario/scenario.h"

namespace gradledger::megatron_fsdp {

struct Behaviour {
  Watched<bool> scales_the_bucket{true};        // what is about to be reduced is divided; false: the accumulator
  Watched<bool> optim_scatters{true};           // optim: a reduce-scatter; false: an all-reduce
  Watched<bool> scatters_in_place{true};        // into the buffer's own part; false: into new memory, which is added
  Watched<bool> reduces_again_no_shard{true};   // without overlap_grad_reduce finish_grad_sync() reduces what the backward has reduced, under no_shard
  Watched<bool> reduces_again_optim{true};      // likewise, under optim
  Watched<bool> has_grad_comm_dtype{true};      // MixedPrecisionPolicy is known
  Watched<bool> divides_outer_shards{false};    // outer_dp_sharding_strategy optim: gradients are divided by the ranks; else they are summed
  Watched<bool> averages_in_collective{false};  // average_in_collective is served; else refused
  Watched<bool> steps_when_made{true};          // the optimizer's state is made by a step with zeros; false: by its first step
  Watched<bool> takes_frozen{true};             // parameters that do not learn
  Watched<bool> keeps_param_groups{true};       // of an optimizer that fully_shard_optimizer() extends; false: one group takes their place
  Watched<bool> marks_all_modules{true};        // a backward marks every module for activation recomputation; false: units alone
  Watched<bool> releases_recomputed{true};      // what is marked so gives up its weights behind the forward
  // Of reports: no release is taken to have them otherwise.
  Watched<bool> waits_for_outer{true};        // the end of a backward waits for the reduction between shards
  Watched<bool> overwrites_main_grad{false};  // a fused kernel writes over main_grad where it is the accumulator

  bool operator==(const Behaviour&) const = default;
};

struct SwitchInfo {
  std::string_view name;
  Watched<bool> Behaviour::*member;
  std::string_view since;   // the first release that has it otherwise than those before; "" where none is known to
  std::string_view change;  // what changed it there
  std::string_view says;    // where it is true
  // Of what some releases had alone: the first one that has it no more, and the change that ended it.
  std::string_view until{}, ended_by{};
};

std::span<const SwitchInfo> switches();

inline constexpr std::string_view newest_release = "0.6.1";
inline constexpr std::string_view oldest_release = "0.1.0";

// Of a release that is newer than what is modelled: how it is taken.
std::optional<std::string> release_note(std::string_view as_of);

// Errors: a release before the oldest, no release at all, an unknown switch, a value that is neither "yes" nor "no".
Result<Behaviour> behaviour_of(const AsOf& as_of);

}  // namespace gradledger::megatron_fsdp
