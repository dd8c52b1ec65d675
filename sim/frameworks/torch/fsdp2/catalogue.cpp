#include "sim/frameworks/torch/fsdp2/catalogue.h"

namespace gradledger::torch::fully_shard {
namespace {

constexpr auto recorded = Evidence::recorded, read = Evidence::read;

// Those of our collection by their number in it; then those that the comparison of releases found. A row an entry.
// clang-format off
constexpr Entry entries[] = {
    {"zoo-42", "all-reduced-gradient-freed-while-it-is-copied",
     "what was all-reduced is freed while the stream of the all-reduce still copies it", "pytorch#180665", read, {"stream-race"}, ""},
    {"zoo-43", "host-memory-read-by-a-hook",
     "with offload a hook of a parameter reads its gradient before it arrived on the host", "pytorch#180666", read, {"stream-race"},
     "an optimizer in the backward is replayed from recordings, and not judged"},
    {"zoo-44", "end-of-backward-hook-left-out", "a pipeline leaves out the hook that waits for reductions at the end of a backward", "pytorch#144535", read, {"stream-race"}, ""},
    {"newer-21", "gradient-dtype-not-taken-over",
     "fully_shard drops Tensor.grad_dtype, and gradients are accumulated as parameters compute", "pytorch#170648, pytorch#194434", recorded, {"rounding-excess"}, ""},
    {"newer-22", "divide-factor-of-the-reduce-scatter-alone",
     "a divide factor replaces the reduce-scatter's average, and the all-reduce averages besides", "pytorch#155903", recorded, {"wrong-scale"}, ""},
    {"newer-41", "clipping-with-a-used-up-generator",
     "clip_grad_norm_ is given a generator that was gone through: the norm is 0, and nothing is clipped", "flame#20", read, {"wrong-norm"}, ""},
    {"fsdp2-1", "resharded-modules-left-unreduced",
     "the end of a backward reduces modules that are unsharded, and leaves out one that an earlier backward alone used", "pytorch#144755", recorded,
     {"discarded-gradient", "stale-gradient"}, ""},
    {"fsdp2-2", "offload-waits-for-the-reduce-scatter",
     "with CPU offload the host waits for the reduce-scatter, and reads what is copied behind the all-reduce", "pytorch#160291", read, {"stream-race"}, ""},
    {"fsdp2-3", "partial-sums-added-by-place",
     "what waits for the other replicas is added by its place in a buffer, and stays where a micro-batch does not use its module", "", recorded,
     {"misplaced-shard", "discarded-gradient", "stale-gradient"}, ""},
    {"fsdp2-4", "reset-keeps-unreduced-gradients", "reset_iter_state keeps what was accumulated without a reduction, which it is documented to lose", "", recorded, {"stale-gradient"}, ""},
    {"fsdp2-5", "sum-beside-a-first-gradient",
     "a sum in the dtype of the reduction and a first gradient in that of computing are of one module, and its reduction raises", "pytorch#190627", recorded, {"engine-error"}, ""},
};
// clang-format on

}  // namespace

std::span<const Entry> catalogue() { return entries; }

}  // namespace gradledger::torch::fully_shard
