#include "sim/frameworks/megatron/behaviour.h"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "sim/frameworks/yes_no_history.h"
#include "sim/frameworks/megatron/history.h"

namespace gradledger::megatron {
namespace {

constexpr std::array all{
    SwitchInfo{"bucket_groups", &Behaviour::bucket_groups, "0.9.0", "Megatron-LM 655a663", "a bucket's handle is given up once it was waited for"},
    SwitchInfo{"divides_by_context", &Behaviour::divides_by_context, "0.9.0", "Megatron-LM 3bdcbbb", "gradients are divided by data-parallel times context-parallel ranks"},
    SwitchInfo{"gathers_all", &Behaviour::gathers_all, "0.9.0", "Megatron-LM 655a663", "each optimizer's step gathers the parameters of all"},
    SwitchInfo{"keeps_bucket_start", &Behaviour::keeps_bucket_start, "0.13.0", "Megatron-LM afb755f",
               "an embedding's own bucket is empty, and its gradient lies in the bucket before"},
    SwitchInfo{"instances", &Behaviour::instances, "0.10.0", "Megatron-LM bb84eb9", "several instances of the distributed optimizer"},
    SwitchInfo{"groups_of_any_size", &Behaviour::groups_of_any_size, "0.10.0", "Megatron-LM 4295be1",
               "an interleaved schedule's groups of micro-batches can be larger than the pipeline, and the last one smaller"},
    SwitchInfo{"expert_by_sizes", &Behaviour::expert_by_sizes, "0.12.0", "Megatron-LM 4f8974a", "averaged experts are scaled by expert-data over data-parallel ranks"},
    SwitchInfo{"mean_times_context", &Behaviour::mean_times_context, "0.12.0", "Megatron-LM 5946e24", "the schedule multiplies a mean loss by the context-parallel ranks"},
    SwitchInfo{"chains_one", &Behaviour::chains_one, "0.12.0", "Megatron-LM 5b07671", "the norm is computed though nothing is clipped"},
    SwitchInfo{"joint_norm", &Behaviour::joint_norm, "0.12.0", "Megatron-LM 5b07671", "optimizers that share a group have one norm"},
    SwitchInfo{"pads_for_bandwidth", &Behaviour::pads_for_bandwidth, "0.12.0", "Megatron-LM 0e9fcc1", "buckets can be padded to multiples of 65536 elements"},
    SwitchInfo{"refuses_average_per_token", &Behaviour::refuses_average_per_token, "0.12.0", "Megatron-LM 5946e24",
               "average_in_collective is refused with calculate_per_token_loss"},
    SwitchInfo{"checks_by_rerun", &Behaviour::checks_by_rerun, "0.12.0", "Megatron-LM 4dc6b71", "NaN and infinities in a local gradient are reported by the rerun state machine"},
    SwitchInfo{"tokens_over_context", &Behaviour::tokens_over_context, "0.13.0", "Megatron-LM 3806ec2", "tokens are counted over context-parallel ranks"},
    SwitchInfo{"averages_over_tensor", &Behaviour::averages_over_tensor, "0.13.0", "Megatron-LM 1674ce3", "average_gradients_across_tp_domain is known"},
    SwitchInfo{"norm_of_instance", &Behaviour::norm_of_instance, "0.13.0", "Megatron-LM 8c1e094",
               "the distributed optimizer's norm is that of the rank's instance: before it every instance counted, which all hold the same"},
    SwitchInfo{"optimizers_of_all", &Behaviour::optimizers_of_all, "0.14.0", "Megatron-LM 9a45638", "a rank has each optimizer that some rank has parameters for"},
    SwitchInfo{"clamps_tokens", &Behaviour::clamps_tokens, "0.15.0", "Megatron-LM 1aef9f8", "a micro-batch without tokens is divided by 1"},
    SwitchInfo{"counts_ready", &Behaviour::counts_ready, "0.16.0", "Megatron-LM#2837", "a bucket is sent once each parameter was ready as often as in the first window"},
    SwitchInfo{"zeros_in_int64", &Behaviour::zeros_in_int64, "0.17.0", "Megatron-LM#4015", "zeros of gradients are counted in whole numbers"},
    SwitchInfo{"remembers_finish", &Behaviour::remembers_finish, "0.18.0", "Megatron-LM#4940", "with overlap, a second finalize of a window sends nothing"},
    SwitchInfo{"asks_for_norm_groups", &Behaviour::asks_for_norm_groups, "0.19.0", "Megatron-LM#4116", "optimizers agree once on gradients with a norm of their own"},
    // What some releases had alone.
    SwitchInfo{"refuses_average_of_instances", &Behaviour::refuses_average_of_instances, "0.10.0", "Megatron-LM bb84eb9",
               "average_in_collective is refused with several instances of the distributed optimizer", "0.11.0", "Megatron-LM 64e065c"},
    SwitchInfo{"skips_nan_check", &Behaviour::skips_nan_check, "0.10.0", "Megatron-LM 1469d64",
               "check_for_nan_in_grad asks the rerun state machine, which does nothing unless it is switched on", "0.12.0", "Megatron-LM 4dc6b71"},
    SwitchInfo{"counts_zeros", &Behaviour::counts_zeros, "0.12.0", "Megatron-LM 5b07671", "zeros of gradients are counted though nobody asked", "0.13.0", "Megatron-LM d960800"},
    SwitchInfo{"sum_times_context", &Behaviour::sum_times_context, "0.12.0", "Megatron-LM 5946e24", "a loss that comes with its tokens is multiplied too", "0.13.0",
               "Megatron-LM 3806ec2"},
};

// In no release; a scenario sets them by hand.
constexpr std::array of_reports{
    SwitchInfo{"kernel_overwrites_first", &Behaviour::kernel_overwrites_first, "", "Megatron-LM#6279, Megatron-LM#6965",
               "a fused kernel writes over main_grad in the first micro-batch of a schedule's call"},
    SwitchInfo{"added_flag_lasts", &Behaviour::added_flag_lasts, "", "Primus#1046", "a fused weight that was added once counts as added until the buffer is cleared"},
    SwitchInfo{"one_reduction_of_uses", &Behaviour::one_reduction_of_uses, "", "Megatron-LM#6242", "of several uses of a weight in one backward the last one's gradient is left"},
    SwitchInfo{"hook_inherits_a_stream", &Behaviour::hook_inherits_a_stream, "", "Megatron-LM#3670",
               "gradients are added on a stream that the reduction of several optimizer instances does not wait for"}};

using Release = ReleaseNumber;

std::optional<Release> release_of(std::string_view text) {
  if (text.starts_with("core_v")) text.remove_prefix(6);
  return release_number(text);
}

}  // namespace

std::span<const SwitchInfo> switches() {
  static const std::vector<SwitchInfo> listed = [] {
    std::vector<SwitchInfo> out(all.begin(), all.end());
    out.insert(out.end(), of_reports.begin(), of_reports.end());
    return out;
  }();
  return listed;
}

std::optional<std::string> release_note(std::string_view as_of) {
  const auto release = release_of(as_of);
  if (!release || *release < *release_of(oldest_release)) return std::nullopt;
  if (const std::string_view newest = compared_releases().back(); *release > *release_of(newest))
    return std::string(as_of) + " is newer than every release that is modelled; taken as the newest of them, " + std::string(newest);
  std::string_view taken = oldest_release;
  for (const std::string_view compared : compared_releases())
    if (*release_of(compared) <= *release) taken = compared;
  if (*release_of(taken) == *release) return std::nullopt;
  return std::string(as_of) + " is no release of Megatron-Core that was compared; taken as " + std::string(taken);
}

Result<Behaviour> behaviour_of(const AsOf& as_of) {
  Behaviour out;
  place(switches(), out);
  if (as_of.base != "head") {
    const auto release = release_of(as_of.base);
    if (!release) return InputError{"/engine/as_of", "is \"" + as_of.base + "\"; expected a release of Megatron-Core, as \"0.16.1\", or \"head\""};
    if (*release < *release_of(oldest_release)) return InputError{"/engine/as_of", "is \"" + as_of.base + "\"; releases are modelled from " + std::string(oldest_release) + " on"};
    for (const SwitchInfo& info : all) out.*info.member = value_at(dates_of<Behaviour>(info), *release);
  }
  if (auto problem = set_by_hand(as_of, switches(), "Megatron-Core", out)) return *problem;
  return out;
}

}  // namespace gradledger::megatron
