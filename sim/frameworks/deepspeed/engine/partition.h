// How ZeRO divides parameters among ranks: the flat, padded layout of stages 1 and 2 and BF16_Optimizer, and stage 3's per-parameter one.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "sim/base/contract.h"
#include "sim/scenario/layout.h"
#include "sim/scenario/scenario.h"

namespace gradledger {

// Where a rank's partition and a parameter meet.
struct OwnedPart {
  std::uint32_t parameter = 0;
  std::uint64_t parameter_offset = 0;  // first owned element, within the parameter
  std::uint64_t partition_offset = 0;  // the same element, within the partition
  std::uint64_t numel = 0;
  std::uint32_t group = 0;  // of the optimizer's groups
};

// The parameters of one of the optimizer's groups, laid end to end in `order`, padded with zeros to a multiple of twice the ranks that
// divide them; member r of these owns [r x partition, (r+1) x partition).
// In the order given, or dealt to the ranks in turn; from 0.19.8 on parameters without elements are not dealt.
enum class Dealing : std::uint8_t { in_order, in_turn, in_turn_without_empty };

class FlatPartition {
 public:
  FlatPartition(const Scenario& scenario, const std::vector<std::uint32_t>& members, std::uint32_t world, Dealing dealing) : world_(world) {
    std::vector<std::uint32_t> dealt = members;
    const auto empty = dealing != Dealing::in_turn_without_empty
                           ? dealt.end()
                           : std::stable_partition(dealt.begin(), dealt.end(), [&](std::uint32_t p) { return scenario.parameters[p].numel > 0; });
    const auto count = static_cast<std::size_t>(empty - dealt.begin());
    for (std::uint32_t rank = 0; dealing != Dealing::in_order && rank < world_; ++rank)
      for (std::size_t i = rank; i < count; i += world_) order_.push_back(dealt[i]);
    order_.insert(order_.end(), dealing == Dealing::in_order ? dealt.begin() : empty, dealt.end());
    for (std::uint32_t p : order_) {
      places_.push_back({p, numel_, scenario.parameters[p].numel});
      numel_ += scenario.parameters[p].numel;
    }
    std::sort(places_.begin(), places_.end(), [](const Place& a, const Place& b) { return a.parameter < b.parameter; });
    const std::uint64_t grain = 2 * world_;
    partition_ = (numel_ + grain - 1) / grain * grain / world_;
  }

  std::uint64_t numel() const { return numel_; }  // without padding
  std::uint64_t padded() const { return partition_ * world_; }
  std::uint64_t partition() const { return partition_; }
  std::uint64_t offset(std::uint32_t parameter) const { return place(parameter).offset; }  // precondition: contains(parameter)
  const std::vector<std::uint32_t>& order() const { return order_; }

  bool contains(std::uint32_t parameter) const { return find(parameter) != nullptr; }
  // Ranks from this one on own the parameter, as far as it reaches. Precondition: contains(parameter).
  std::uint32_t first_owner(std::uint32_t parameter) const { return partition_ == 0 ? 0 : static_cast<std::uint32_t>(offset(parameter) / partition_); }
  bool owns(std::uint32_t rank, std::uint32_t parameter) const { return owned(rank, parameter).numel > 0; }

  // numel is 0 where they do not meet. Precondition: contains(parameter).
  OwnedPart owned(std::uint32_t rank, std::uint32_t parameter) const {
    const Place& flat = place(parameter);
    const std::uint64_t begin = std::max<std::uint64_t>(flat.offset, std::uint64_t{rank} * partition_);
    const std::uint64_t end = std::min<std::uint64_t>(flat.offset + std::uint64_t{flat.numel}, (std::uint64_t{rank} + 1) * partition_);
    if (begin >= end) return {parameter, 0, 0, 0, 0};
    return {parameter, begin - flat.offset, begin - std::uint64_t{rank} * partition_, end - begin, 0};
  }

  // The last of the ranks from `owner` on that own a part of the parameter, up to the one before `rank` if that is among them; `rank` by itself.
  // Precondition: owner owns a part, or precedes who does; contains(parameter).
  std::uint32_t last_owner_before(std::uint32_t rank, std::uint32_t owner, std::uint32_t parameter) const {
    const Place& flat = place(parameter);
    if (owner == rank || flat.numel == 0 || partition_ == 0) return owner;
    const auto last = std::max(owner, static_cast<std::uint32_t>((flat.offset + flat.numel - 1) / partition_));
    return owner < rank && rank <= last ? rank - 1 : last;
  }
  // How many elements of the parameter ranks [first, last] own. Precondition: contains(parameter).
  std::uint64_t owned_by(std::uint32_t first, std::uint32_t last, std::uint32_t parameter) const {
    const Place& flat = place(parameter);
    const std::uint64_t begin = std::max(flat.offset, std::uint64_t{first} * partition_), end = std::min(flat.offset + flat.numel, (std::uint64_t{last} + 1) * partition_);
    return begin < end ? end - begin : 0;
  }

  // The rank's parts in flat order.
  std::vector<OwnedPart> parts(std::uint32_t rank) const {
    std::vector<OwnedPart> out;
    for (std::uint32_t p : order_)
      if (const OwnedPart part = owned(rank, p); part.numel > 0) out.push_back(part);
    return out;
  }

 private:
  struct Place {
    std::uint32_t parameter;
    std::uint64_t offset, numel;
  };

  // None of a parameter that is no member.
  const Place* find(std::uint32_t parameter) const {
    const std::size_t guess = places_.empty() ? 0 : std::size_t{parameter} - places_.front().parameter;  // most groups have numbers without a gap
    if (guess < places_.size() && places_[guess].parameter == parameter) return &places_[guess];
    const auto at = std::lower_bound(places_.begin(), places_.end(), parameter, [](const Place& place, std::uint32_t p) { return place.parameter < p; });
    return at != places_.end() && at->parameter == parameter ? &*at : nullptr;
  }
  const Place& place(std::uint32_t parameter) const {
    const Place* const found = find(parameter);
    expects(found != nullptr, "a parameter is looked up in a group that it is no member of");
    return *found;
  }

  std::uint32_t world_;
  std::uint64_t numel_ = 0;
  std::uint64_t partition_ = 0;
  std::vector<std::uint32_t> order_;
  std::vector<Place> places_;  // by parameter, of the members alone
};

// Stage 3: rank r holds elements [r x q, min((r+1) x q, numel)) of each parameter, q = ceil(numel / world).
struct ParameterShard {
  std::uint64_t size = 0;    // q, padding included
  std::uint64_t offset = 0;  // first element held
  std::uint64_t real = 0;    // elements that are not padding; 0: no real data on this rank
};

inline ParameterShard shard_of(std::uint64_t numel, std::uint32_t world, std::uint32_t rank) {
  const std::uint64_t q = (numel + world - 1) / world;
  const std::uint64_t begin = std::min(rank * q, numel);
  const std::uint64_t end = std::min(begin + q, numel);
  return {q, begin, end - begin};
}

}  // namespace gradledger
