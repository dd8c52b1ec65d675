// What of Megatron-Core a release changed, as switches. Each is named with the change that moved it in behaviour.cpp.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sim/base/result.h"
#include "sim/frameworks/watched_switch.h"
#include "sim/scenario/scenario.h"

namespace gradledger::megatron {

struct Behaviour {
  Watched<bool> bucket_groups{true};        // buckets are reduced as groups, which forget their handle once they waited for it
  Watched<bool> counts_ready{true};         // a bucket is sent once each parameter was ready as often as in the first window; false: once, and no more
  Watched<bool> remembers_finish{true};     // with overlap, a reduction that was finished is not waited for again
  Watched<bool> divides_by_context{true};   // the divisor counts context-parallel ranks
  Watched<bool> expert_by_sizes{true};      // experts that are averaged in the collective are scaled by their share of the ranks; false: by 1 / experts
  Watched<bool> mean_times_context{true};   // the schedule multiplies a mean loss by the context-parallel ranks
  Watched<bool> sum_times_context{false};   // and a loss that comes with its tokens
  Watched<bool> tokens_over_context{true};  // tokens are counted over context-parallel ranks
  Watched<bool> clamps_tokens{true};        // a micro-batch without tokens is divided by 1
  Watched<bool> optimizers_of_all{true};    // a rank has each optimizer that some rank has parameters for; false: that it has parameters for itself
  Watched<bool> chains_one{true};           // a lone optimizer is chained too, and its norm is computed though nothing is clipped
  Watched<bool> joint_norm{true};           // optimizers that share a group have one norm
  Watched<bool> norm_of_instance{true};     // norms, overflows and zeros are those of the rank's instance of the distributed optimizer; false: of all ranks
  Watched<bool> gathers_all{true};          // each optimizer's step gathers all parameters
  Watched<bool> instances{true};            // several instances of the distributed optimizer
  Watched<bool> refuses_average_per_token{true};
  Watched<bool> refuses_average_of_instances{false};  // an assertion takes the whole data-parallel group for what is averaged over
  Watched<bool> checks_by_rerun{true};                // NaN and infinities are reported by the rerun state machine
  Watched<bool> skips_nan_check{false};               // which is asked, and does nothing unless it is switched on
  Watched<bool> asks_for_norm_groups{true};           // before clipping, optimizers agree once on whether they have gradients with a norm of their own
  Watched<bool> counts_zeros{false};                  // zeros of gradients are counted though nobody asked
  Watched<bool> zeros_in_int64{true};                 // zeros are summed as whole numbers
  Watched<bool> pads_for_bandwidth{true};             // pad_buckets_for_high_nccl_busbw is known
  Watched<bool> keeps_bucket_start{false};            // a bucket that is opened for an embedding starts where the parameter was, not behind the padding
  Watched<bool> averages_over_tensor{true};           // average_gradients_across_tp_domain is known
  Watched<bool> groups_of_any_size{true};             // interleaved: microbatch_group_size_per_vp_stage is known, and the last group may be smaller
  // Of reports about forks, kernels and a stream: no release is taken to have them.
  Watched<bool> kernel_overwrites_first{false};  // a fused kernel writes over main_grad in the first micro-batch of a schedule's call
  Watched<bool> added_flag_lasts{false};         // grad_added_to_main_grad lasts until the buffer is cleared: later micro-batches are taken for added
  Watched<bool> one_reduction_of_uses{false};    // uses of a weight in one backward share a reduction: that of the last one is left
  Watched<bool> hook_inherits_a_stream{false};   // the hook of a gradient runs on another stream, and the reduction waits for the default one

  bool operator==(const Behaviour&) const = default;
};

struct SwitchInfo {
  std::string_view name;
  Watched<bool> Behaviour::*member;
  std::string_view since;   // the first release that has it otherwise than those before; "" where none is known to
  std::string_view change;  // of Megatron-LM: a commit, a pull request
  std::string_view says;    // where it is true
  // Of what some releases had alone: the first one that has it no more, and the change that ended it.
  std::string_view until{}, ended_by{};
};

std::span<const SwitchInfo> switches();

// The oldest release that is modelled; "head" is what came behind the newest one.
inline constexpr std::string_view oldest_release = "0.8.0";

// Of a release that is newer than what is modelled, or was not compared: how it is taken.
std::optional<std::string> release_note(std::string_view as_of);

// Errors: a release before the oldest, no release at all, an unknown switch, a value that is neither "yes" nor "no".
Result<Behaviour> behaviour_of(const AsOf& as_of);

}  // namespace gradledger::megatron
