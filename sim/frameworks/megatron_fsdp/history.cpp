#include "sim/frameworks/megatron_fsdp/history.h"

#include <array>

#include "sim/frameworks/megatron_fsdp/behaviour.h"
#include "sim/frameworks/yes_no_history.h"

namespace gradledger::megatron_fsdp {
namespace {

// Packages that were compared with the one before.
constexpr std::array<std::string_view, 12> compared{"0.1.0", "0.2.0", "0.2.1", "0.2.2", "0.2.3", "0.3.0", "0.3.1", "0.4.0", "0.5.0", "0.5.1", "0.6.0", "0.6.1"};

// A row an entry.
// clang-format off
constexpr Repair repaired[] = {
    {"zoo-73", "waits_for_outer", "no", "yes"},
    {"mfsdp-1", "scales_the_bucket", "no", "yes"},
    {"mfsdp-2", "scatters_in_place", "no", "yes"},
    {"mfsdp-4", "reduces_again_optim", "yes", "no", "Leave overlap_grad_reduce on."},
    {"mfsdp-5", "reduces_again_no_shard", "yes", "no", "Leave overlap_grad_reduce on."},
    {"mfsdp-6", "divides_outer_shards", "no", "yes", "Leave outer_dp_sharding_strategy out, so that what is outside of a shard holds copies."},
    {"mfsdp-7", "overwrites_main_grad", "yes", "no"},
    {"mfsdp-8", "steps_when_made", "yes", "no"},
};
// clang-format on

}  // namespace

const History& history() {
  static const YesNoHistory it = yes_no_history<Behaviour>(switches(), compared, "", repaired, behaviour_of);
  return it;
}

}  // namespace gradledger::megatron_fsdp
