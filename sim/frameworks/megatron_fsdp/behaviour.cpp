#include "sim/frameworks/megatron_fsdp/behaviour.h"

#include <algorithm>
#include <array>

#include "sim/frameworks/yes_no_history.h"

namespace gradledger::megatron_fsdp {
namespace {

constexpr std::string_view title = "Megatron-FSDP";

// By what the releases of the package hold: each was compared with the one before, and recorded on both sides.
constexpr std::array of_releases{
    SwitchInfo{"keeps_param_groups", &Behaviour::keeps_param_groups, "0.2.2", "megatron-fsdp 0.2.2",
               "fully_shard_optimizer() leaves the optimizer its param_groups; else one group of all parameters takes their place"},
    SwitchInfo{"scales_the_bucket", &Behaviour::scales_the_bucket, "0.3.0", "megatron-fsdp 0.3.0",
               "in bf16 what is about to be reduced is divided; else the accumulator is, which holds the backwards before"},
    SwitchInfo{"optim_scatters", &Behaviour::optim_scatters, "0.3.0", "megatron-fsdp 0.3.0", "optim reduces by a reduce-scatter; else by an all-reduce"},
    SwitchInfo{"reduces_again_optim", &Behaviour::reduces_again_optim, "0.3.0", "megatron-fsdp 0.3.0",
               "optim without overlap_grad_reduce: finish_grad_sync() reduces again what the backward has reduced"},
    SwitchInfo{"scatters_in_place", &Behaviour::scatters_in_place, "0.4.0", "megatron-fsdp 0.4.0",
               "a gradient that is kept whole is reduced in place; else the average is added to the rank's own sum"},
    SwitchInfo{"has_grad_comm_dtype", &Behaviour::has_grad_comm_dtype, "0.4.0", "megatron-fsdp 0.4.0", "grad_comm_dtype is known"},
    SwitchInfo{"divides_outer_shards", &Behaviour::divides_outer_shards, "0.4.0", "megatron-fsdp 0.4.0",
               "outer_dp_sharding_strategy optim: gradients are divided by the ranks; else they are summed"},
    SwitchInfo{"steps_when_made", &Behaviour::steps_when_made, "0.4.0", "megatron-fsdp 0.4.0", "fully_shard_optimizer() makes the optimizer's state by a step with zeros"},
    SwitchInfo{"reduces_again_no_shard", &Behaviour::reduces_again_no_shard, "0.5.0", "megatron-fsdp 0.5.0",
               "no_shard without overlap_grad_reduce: finish_grad_sync() reduces again what the backward has reduced"},
    SwitchInfo{"releases_recomputed", &Behaviour::releases_recomputed, "0.3.0", "megatron-fsdp 0.3.0",
               "a unit that a backward left marked for activation recomputation gives up its weights behind its forward, with the next gather; else they stay"},
    SwitchInfo{"marks_all_modules", &Behaviour::marks_all_modules, "0.5.0", "megatron-fsdp 0.5.0",
               "a backward marks every module for activation recomputation, so that it gathers nothing ahead in later forwards; else units alone"},
    // What some releases had otherwise than those before and those behind them.
    SwitchInfo{"averages_in_collective", &Behaviour::averages_in_collective, "0.3.0", "megatron-fsdp 0.3.0",
               "average_in_collective is served; else it is refused with an AttributeError", "0.5.0", "megatron-fsdp 0.5.0"},
    SwitchInfo{"takes_frozen", &Behaviour::takes_frozen, "0.3.0", "megatron-fsdp 0.3.0", "a model may have parameters that do not learn", "0.4.0", "megatron-fsdp 0.4.0"}};

// In no release; a scenario sets them by hand.
constexpr std::array of_reports{
    SwitchInfo{"waits_for_outer", &Behaviour::waits_for_outer, "", "Megatron-LM#4891",
               "the end of a backward waits for the reduction between shards, and not for that within one alone"},
    SwitchInfo{"overwrites_main_grad", &Behaviour::overwrites_main_grad, "", "Megatron-LM#6357", "a fused kernel writes over main_grad, also where that is the accumulator"}};

}  // namespace

std::span<const SwitchInfo> switches() {
  static const auto listed = [] {
    std::array<SwitchInfo, of_releases.size() + of_reports.size()> out{};
    std::copy(of_reports.begin(), of_reports.end(), std::copy(of_releases.begin(), of_releases.end(), out.begin()));
    return out;
  }();
  return listed;
}

std::optional<std::string> release_note(std::string_view as_of) { return note_of_newer_release(as_of, newest_release); }

Result<Behaviour> behaviour_of(const AsOf& as_of) {
  Behaviour out;
  place(switches(), out);
  const auto release = asked_release(as_of, oldest_release, title);
  if (!release) return release.error();
  if (*release)
    for (const SwitchInfo& info : of_releases) out.*info.member = value_at(dates_of<Behaviour>(info), **release);
  if (auto problem = set_by_hand(as_of, switches(), title, out)) return *problem;
  return out;
}

}  // namespace gradledger::megatron_fsdp
