#include "sim/frameworks/megatron_fsdp/catalogue.h"

namespace gradledger::megatron_fsdp {
namespace {

constexpr auto recorded = Evidence::recorded, read = Evidence::read;

// Those of our collection by their number in it; then those that the comparison of releases found. A row an entry.
// clang-format off
constexpr Entry entries[] = {
    {"zoo-73", "outer-reduction-not-waited-for",
     "the outer reduction of hybrid shards is not waited for", "Megatron-LM#4891", read, {"stream-race"}, ""},
    {"mfsdp-1", "accumulator-divided-for-the-bucket",
     "in bf16 each reduction divides the gradients of the backwards before, and not its own", "Megatron-LM#3023", recorded, {"wrong-scale", "duplicated-gradient"}, ""},
    {"mfsdp-2", "average-added-to-the-own-sum",
     "with optim the average is added to the rank's own sum, which stays", "megatron-fsdp 0.3, repaired in 0.4.0", recorded, {"duplicated-gradient", "wrong-scale"}, ""},
    {"mfsdp-3", "one-rank-adds-its-sum-to-itself",
     "on one rank a sharded gradient is reduced into a copy of its own accumulator and added to it: every backward doubles those before", "Megatron-LM#6660", recorded, {"duplicated-gradient"}, ""},
    {"mfsdp-4", "finish-reduces-again",
     "optim without overlap_grad_reduce: the hooks reduce, and finish_grad_sync() scatters averages and the peers' own sums again", "megatron-fsdp since 0.3.0", recorded, {"wrong-scale"}, ""},
    {"mfsdp-5", "finish-adds-ranks-again",
     "calculate_per_token_loss and no_shard without overlap_grad_reduce: sums over the ranks are added up once more", "megatron-fsdp since 0.5.0", recorded, {"wrong-scale"}, ""},
    {"mfsdp-6", "outer-shards-never-divided",
     "outer_dp_sharding_strategy optim: the buffer that a shard sums in has no divisor, and gradients are summed over the ranks", "megatron-fsdp since 0.4.0", recorded, {"wrong-scale"}, ""},
    {"mfsdp-7", "kernel-overwrites-the-accumulator",
     "with optim a fused kernel is told to write over main_grad, which is the accumulator: the last micro-batch is left", "Megatron-LM#6357", read, {"discarded-gradient"}, ""},
    {"mfsdp-8", "optimizer-steps-when-it-is-made",
     "the state of the optimizer is made by a step with zeros: Adam has counted one, and weights have decayed", "Megatron-LM#5976", recorded, {"rounding-excess"}, ""},
    {"mfsdp-9", "no-sync-without-effect",
     "no_sync() defers nothing where the model synchronises each micro-batch, which fully_shard does by default", "megatron-fsdp, all releases", recorded, {"wrong-scale"}, ""},
    {"mfsdp-10", "shards-of-one-rank-divide-again",
     "in a mesh whose shards have one rank the accumulator is what is reduced, and each backward divides those before it by all ranks", "megatron-fsdp 0.6.1", recorded, {"wrong-scale"}, ""},
};
// clang-format on

}  // namespace

std::span<const Entry> catalogue() { return entries; }

}  // namespace gradledger::megatron_fsdp
