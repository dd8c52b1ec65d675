#include "sim/frameworks/megatron/history.h"

#include <array>

#include "sim/frameworks/megatron/behaviour.h"
#include "sim/frameworks/yes_no_history.h"

namespace gradledger::megatron {
namespace {

constexpr std::array<std::string_view, 23> compared{"0.8.0",  "0.9.0",  "0.10.0", "0.11.0", "0.12.0", "0.12.1", "0.12.2", "0.12.3", "0.13.0", "0.13.1", "0.14.0", "0.15.0",
                                                    "0.15.1", "0.15.2", "0.15.3", "0.16.0", "0.16.1", "0.17.0", "0.17.1", "0.18.0", "0.18.2", "0.19.0", "0.19.2"};

// A row an entry.
// clang-format off
constexpr Repair repaired[] = {
    {"zoo-57", "keeps_bucket_start", "yes", "no"},
    {"zoo-69", "divides_by_context", "no", "yes"},
    {"megatron-1", "counts_ready", "yes", "no", "Give no grad_sync_func (Megatron-LM: --no-align-grad-reduce), or have one optimizer instance."},
    {"megatron-2", "norm_of_instance", "no", "yes", "Have one optimizer instance."},
    {"megatron-3", "optimizers_of_all", "no", "yes"},
};
// clang-format on

}  // namespace

std::span<const std::string_view> compared_releases() { return compared; }

const History& history() {
  static const YesNoHistory it = yes_no_history<Behaviour>(switches(), compared, "core_v", repaired, behaviour_of);
  return it;
}

}  // namespace gradledger::megatron
