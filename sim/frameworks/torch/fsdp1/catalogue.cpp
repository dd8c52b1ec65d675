#include "sim/frameworks/torch/fsdp1/catalogue.h"

namespace gradledger::torch::flat_sharded {
namespace {

constexpr auto recorded = Evidence::recorded, read = Evidence::read;

// Of our collection, by their number in it. A row an entry.
// clang-format off
constexpr Entry entries[] = {
    {"zoo-41", "offloaded-view-inside-no-sync",
     "original parameters, offload and no_sync: a view is on the wrong device", "pytorch#98494, pytorch#100180", read, {"engine-error"},
     "reported of PyTorch 2.0; the engine begins with 2.4"},
    {"zoo-46", "hybrid-of-whole-shards-not-reduced",
     "HYBRID_SHARD whose shards are whole is taken for NO_SHARD, and reduces within one rank", "verl#7493, pytorch#154888", recorded, {"discarded-gradient"}, ""},
    {"zoo-47", "offload-with-smaller-micro-batches", "offload in a loop that cuts its batch into micro-batches without no_sync", "verl#93", read, {"offload-loss"}, ""},
    {"zoo-48", "offload-outside-no-sync",
     "offload with accumulation outside of no_sync, which the documentation says is not supported", "instructlab#414", read, {"offload-loss"}, ""},
    {"zoo-54", "trainer-without-no-sync", "a trainer leaves no_sync out, and every micro-batch is reduced", "transformers#34645", read, {"engine-error"},
     "the report's step raised in a configuration that it does not say; the other effect, a reduction of every micro-batch, is what FullyShardedDataParallel documents"},
    {"zoo-76", "added-up-low-and-reduced-high", "micro-batches are added up in bf16 and reduced in fp32", "ISEEKYAN/Megatron-LM#149", read, {"rounding-excess"}, ""},
};
// clang-format on

}  // namespace

std::span<const Entry> catalogue() { return entries; }

}  // namespace gradledger::torch::flat_sharded
