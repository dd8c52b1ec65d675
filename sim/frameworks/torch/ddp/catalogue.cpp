#include "sim/frameworks/torch/ddp/catalogue.h"

namespace gradledger::torch {
namespace {

constexpr auto recorded = Evidence::recorded, read = Evidence::read;

// Of our collection, by their number in it. A row an entry.
// clang-format off
constexpr Entry entries[] = {
    {"zoo-27", "static-graph-counts-inside-no-sync",
     "static_graph, and a first window with no_sync: the first backward queues a reduction that nothing prepared", "pytorch#187732", recorded, {"engine-error"}, ""},
    {"zoo-28", "static-graph-prepared-by-a-trainer",
     "static_graph in a loop that prepares the reducer itself: the reduction of the first window is never queued", "lightning#18086, lightning#21251", read,
     {"missing-reduction"}, ""},
    {"zoo-29", "hook-copies-to-a-detached-tensor",
     "with a communication hook buckets are initialised again, and later copies go to a tensor that nothing reads", "pytorch#43307", read, {"stale-gradient"},
     "reported of PyTorch of 2020; the engine begins with 2.4"},
    {"zoo-31", "flag-set-behind-the-forward", "the switch for synchronisation is set between forward and backward", "build-nanogpt#30", read, {"missing-reduction"}, ""},
    {"zoo-148", "bucket-views-filled-with-zeros", "gradients that are views of buckets are filled with zeros in place: no defect", "", read, {}, ""},
};
// clang-format on

}  // namespace

std::span<const Entry> ddp_catalogue() { return entries; }

}  // namespace gradledger::torch
