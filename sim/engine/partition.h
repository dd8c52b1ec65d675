// How ZeRO divides parameters among ranks: the flat, padded layout of stages 1 and 2 and BF16_Optimizer, and stage 3's per-parameter one.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "sim/scenario/layout.h"
#include "sim/scenario/scenario.h"

namespace gradledger {

// Where a rank's partition and a parameter meet.
struct OwnedPart {
  std::uint32_t parameter = 0;
  std::uint32_t parameter_offset = 0;  // first owned element, within the parameter
  std::uint32_t partition_offset = 0;  // the same element, within the partition
  std::uint32_t numel = 0;
  std::uint32_t group = 0;             // of the optimizer's groups
};

// The parameters of one of the optimizer's groups, laid end to end in `order`, padded with zeros to a multiple of twice the ranks that
// divide them; member r of these owns [r x partition, (r+1) x partition).
class FlatPartition {
 public:
  FlatPartition(const Scenario& scenario, const std::vector<std::uint32_t>& members, std::uint32_t world, bool round_robin) : world_(world) {
    if (round_robin) {
      for (std::uint32_t rank = 0; rank < world_; ++rank)
        for (std::size_t i = rank; i < members.size(); i += world_) order_.push_back(members[i]);
    } else {
      order_ = members;
    }
    offset_.resize(scenario.parameters.size());
    for (std::uint32_t p : order_) {
      offset_[p] = numel_;
      numel_ += scenario.parameters[p].numel;
    }
    const std::uint32_t grain = 2 * world_;
    partition_ = (numel_ + grain - 1) / grain * grain / world_;
    sizes_.resize(scenario.parameters.size());
    for (std::uint32_t p : order_) sizes_[p] = scenario.parameters[p].numel;
  }

  std::uint32_t numel() const { return numel_; }                   // without padding
  std::uint32_t padded() const { return partition_ * world_; }
  std::uint32_t partition() const { return partition_; }
  std::uint32_t offset(std::uint32_t parameter) const { return offset_[parameter]; }
  const std::vector<std::uint32_t>& order() const { return order_; }

  bool contains(std::uint32_t parameter) const { return std::find(order_.begin(), order_.end(), parameter) != order_.end(); }
  bool owns(std::uint32_t rank, std::uint32_t parameter) const { return owned(rank, parameter).numel > 0; }

  // numel is 0 where they do not meet.
  OwnedPart owned(std::uint32_t rank, std::uint32_t parameter) const {
    const std::uint64_t begin = std::max<std::uint64_t>(offset_[parameter], std::uint64_t{rank} * partition_);
    const std::uint64_t end = std::min<std::uint64_t>(offset_[parameter] + std::uint64_t{sizes_[parameter]}, (std::uint64_t{rank} + 1) * partition_);
    if (begin >= end) return {parameter, 0, 0, 0, 0};
    return {parameter, static_cast<std::uint32_t>(begin - offset_[parameter]), static_cast<std::uint32_t>(begin - std::uint64_t{rank} * partition_),
            static_cast<std::uint32_t>(end - begin), 0};
  }

  // The rank's parts in flat order.
  std::vector<OwnedPart> parts(std::uint32_t rank) const {
    std::vector<OwnedPart> out;
    for (std::uint32_t p : order_)
      if (const OwnedPart part = owned(rank, p); part.numel > 0) out.push_back(part);
    return out;
  }

 private:
  std::uint32_t world_;
  std::uint32_t numel_ = 0;
  std::uint32_t partition_ = 0;
  std::vector<std::uint32_t> order_, offset_, sizes_;
};

// Stage 3: rank r holds elements [r x q, min((r+1) x q, numel)) of each parameter, q = ceil(numel / world).
struct ParameterShard {
  std::uint32_t size = 0;    // q, padding included
  std::uint32_t offset = 0;  // first element held
  std::uint32_t real = 0;    // elements that are not padding; 0: no real data on this rank
};

inline ParameterShard shard_of(std::uint32_t numel, std::uint32_t world, std::uint32_t rank) {
  const std::uint32_t q = (numel + world - 1) / world;
  const std::uint64_t begin = std::min<std::uint64_t>(std::uint64_t{rank} * q, numel);
  const std::uint64_t end = std::min<std::uint64_t>(begin + q, numel);
  return {q, static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(end - begin)};
}

}  // namespace gradledger
