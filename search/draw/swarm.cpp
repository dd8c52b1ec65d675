#include "search/draw/swarm.h"

namespace gradledger::search {
namespace {

constexpr std::array<std::string_view, feature_count> names{
    "many parameters", "frozen parameters", "tied parameters", "side stream", "hooked outputs", "parameters of some micro-batches", "expert parallel",
    "sequence parallel", "pipeline",
    "16 bits", "wide accumulation", "dtype on the wire", "clipping", "Adam", "parameter groups", "small buckets", "no contiguous gradients", "no reduce-scatter",
    "overlap", "predivide", "sum", "pinned memory", "sub-groups", "unmanaged accumulation", "immediate update",
    "boundary calls", "counted windows", "bare windows", "no_sync and coalesce", "zero_grad", "explicit forwards", "direct backward", "phases", "uses", "order",
    "unscaled loss", "set_gradient", "overflow", "events of some ranks", "raise", "double steps", "several windows"};

}  // namespace

std::string_view name_of(Feature feature) { return names[static_cast<std::size_t>(feature)]; }

Swarm::Swarm(Draws& draws) {
  for (std::uint8_t& weight : weights_)
    if (!draws.one_in(2)) weight = static_cast<std::uint8_t>(1u << draws.below(5));
}

}  // namespace gradledger::search
