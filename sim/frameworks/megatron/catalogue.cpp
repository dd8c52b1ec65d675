#include "sim/frameworks/megatron/catalogue.h"

namespace gradledger::megatron {
namespace {

constexpr auto recorded = Evidence::recorded, read = Evidence::read;

// Of our collection, by their number in it; then those that its runs showed. A row an entry.
// clang-format off
constexpr Entry entries[] = {
    {"zoo-57", "tied-embedding-in-other-parts",
     "the optimizer's parts of a shared embedding are on other ranks in the first stage and in the last", "Megatron-LM#844", read, {"discarded-gradient"}, ""},
    {"zoo-61", "repeated-layer-overwrites-its-second-use",
     "a layer that is used twice writes over the gradient of its second use", "Megatron-LM#6965", read, {"wrong-scale"}, ""},
    {"zoo-62", "first-micro-batch-flag-overwrites",
     "a fused kernel takes the flag of the first micro-batch for leave to write over main_grad", "Megatron-LM#6279", read, {"discarded-gradient"}, ""},
    {"zoo-63", "uses-share-one-reduction",
     "the uses of a weight in one backward share one reduction, and the last one's gradient is left", "Megatron-LM#6242", read, {"wrong-scale"}, ""},
    {"zoo-67", "experts-of-other-ranks-not-in-the-norm",
     "experts are counted in the norm by the place of the rank among tensor-parallel ones", "Megatron-LM#6470", read, {"wrong-norm"}, ""},
    {"zoo-69", "loss-times-context-ranks",
     "the loss is multiplied by context-parallel ranks, and gradients are divided by the others alone", "Megatron-LM#906, Megatron-LM#673", read, {"wrong-scale"}, ""},
    {"zoo-71", "gradients-never-finalised", "the loop never calls finalize_model_grads", "Megatron-LM#1685", read, {"missing-reduction"}, ""},
    {"zoo-72", "copies-of-the-embedding-drift",
     "copies of a tied embedding drift apart", "Megatron-LM#656", read, {"rank-divergence"}, "the report has no cause; a tied embedding that drifts for a cause that is known is zoo-57"},
    {"zoo-77", "added-flag-lasts-a-window",
     "the flag that a gradient was added is taken back once a window, so that later micro-batches are not added", "Primus#1046", read, {"discarded-gradient"}, ""},
    {"zoo-79", "windows-of-another-length", "buckets are sent after as many backwards as the first window had", "SkyRL#2146", read, {"missing-reduction", "engine-error"}, ""},
    {"newer-29", "hook-runs-on-an-inherited-stream",
     "the hook of a gradient inherits a stream that the reduction of several instances does not wait for", "Megatron-LM#3670, Megatron-LM#3693", read, {"stream-race"}, ""},
    {"newer-36", "per-token-loss-without-tokens",
     "with calculate_per_token_loss a loss function returns no tokens, and nothing is divided", "verl#6609, verl#6836", read, {"wrong-scale"}, ""},
    {"megatron-1", "stage-reduces-its-gradients-twice",
     "with several instances of the distributed optimizer finalize_model_grads reduces again what a stage of 1F1B began to reduce itself", "Megatron-LM#2837", recorded,
     {"wrong-scale", "stream-race"}, ""},
    {"megatron-2", "norm-counts-every-instance",
     "with several instances of the distributed optimizer the norm is summed over all of them, which hold the same gradients", "Megatron-LM 8c1e094", recorded, {"wrong-norm"}, ""},
    {"megatron-3", "stages-wait-for-experts-of-others",
     "a stage without experts has no optimizer for them: stages ask for norms over the same ranks in other groups, and wait for each other", "Megatron-LM 9a45638", recorded,
     {"deadlock"}, ""},
};
// clang-format on

}  // namespace

std::span<const Entry> catalogue() { return entries; }

}  // namespace gradledger::megatron
