#include "sim/frameworks/megatron_fsdp/v2/catalogue.h"

namespace gradledger::megatron_fsdp::v2 {
namespace {

constexpr auto recorded = Evidence::recorded;

// A row an entry.
// clang-format off
constexpr Entry entries[] = {
    {"mfsdp-11", "unfinished-module-waits",
     "a module that lacks the gradient of one parameter is not reduced: its other gradients miss the step, and are added to a later window",
     "megatron-fsdp 0.6.1, experimental", recorded, {"discarded-gradient", "stale-gradient"}, ""},
    {"mfsdp-12", "module-zero-grad-misses-shards",
     "a module that the last forward or backward gathered and did not use stays gathered: model.zero_grad() does not see its gradients, and they are in the next window again",
     "megatron-fsdp 0.6.1, experimental", recorded, {"stale-gradient"}, ""},
    {"mfsdp-13", "grad-comm-dtype-not-read",
     "gradients are reduced in the model's dtype, whatever main_grads_dtype and grad_comm_dtype say", "megatron-fsdp 0.6.1, experimental", recorded, {"rounding-excess"}, ""},
};
// clang-format on

}  // namespace

std::span<const Entry> catalogue() { return entries; }

}  // namespace gradledger::megatron_fsdp::v2
