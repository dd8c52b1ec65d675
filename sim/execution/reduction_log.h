// Shows a sink what reductions are given and give. In place the result overwrites what was handed over, so inputs are kept before.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "sim/execution/rank.h"
#include "sim/execution/rendezvous.h"
#include "sim/trace/producer.h"

namespace gradledger {

class ReductionLog {
 public:
  ReductionLog(std::vector<Rank>& ranks, const Rendezvous& rendezvous, TraceSink& sink) : ranks_(ranks), rendezvous_(rendezvous), sink_(sink) {}

  void before(const Meeting& meeting) {
    inputs_.clear();
    for (const std::uint32_t member : rendezvous_.members(meeting)) {
      const std::span<const std::byte> input = bytes_of(member, call_of(meeting, member).input);
      inputs_.emplace_back(input.begin(), input.end());
    }
  }

  void after(const Meeting& meeting) {
    std::size_t number = 0;
    for (const std::uint32_t member : rendezvous_.members(meeting)) {
      const CollectiveCall& call = call_of(meeting, member);
      const std::vector<std::byte>& input = inputs_[number++];
      if (call.kind == CollectiveKind::all_gather || call.kind == CollectiveKind::broadcast) continue;
      const Arrival& arrival = meeting.rank[member];
      sink_.reduction({rendezvous_.record_of(static_cast<std::uint16_t>(member), arrival.call, arrival.event), input, bytes_of(member, call.output)});
    }
  }

 private:
  const CollectiveCall& call_of(const Meeting& meeting, std::uint32_t rank) const { return ranks_[rank].program.collectives[meeting.rank[rank].call]; }

  std::span<const std::byte> bytes_of(std::uint32_t rank, Slice slice) const {
    Storage& storage = ranks_[rank].memory.storage(slice.buffer);
    return {storage.at(slice), slice.numel * storage.element_bytes};
  }

  std::vector<Rank>& ranks_;
  const Rendezvous& rendezvous_;
  TraceSink& sink_;
  std::vector<std::vector<std::byte>> inputs_;  // by member
};

}  // namespace gradledger
