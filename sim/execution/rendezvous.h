// Where ranks wait for each other. Those of a collective meet: matched by group, communicator and sequence number, checked, performed. A receive waits for its send.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "sim/base/ranges.h"
#include "sim/execution/collectives.h"
#include "sim/execution/devices.h"
#include "sim/execution/rank.h"
#include "sim/execution/rank_classes.h"
#include "sim/execution/symbolic/symbolic_memory.h"
#include "sim/trace/observation.h"

namespace gradledger {

// A rank at a collective.
struct Arrival {
  std::uint32_t call = no_index;  // of the rank's program; no_index: not there yet
  std::uint32_t event = 0;
  Stream stream = Stream::host;
};

// A collective that some ranks have reached. of_classes: each of them calls it for its class too, whose ranks meet in other groups of the family likewise.
struct Meeting {
  std::uint32_t group = 0, communicator = 0, sequence = 0;
  std::uint32_t arrived = 0;
  bool of_classes = false;
  std::vector<Arrival> rank;
};

// The index in its group at which a collective has its root. Roots are ranks of the world; where there is none, the first member stands for it.
std::uint32_t root_index(const std::vector<std::uint32_t>& group, std::uint32_t root);

class Rendezvous {
 public:
  // groups: members by id, sorted. classes: outlive it.
  Rendezvous(std::vector<Rank>& ranks, const RankClasses& classes, std::vector<std::vector<std::uint32_t>> groups, CollectiveArithmetic arithmetic)
      : ranks_(ranks), classes_(classes), groups_(std::move(groups)), arithmetic_(arithmetic) {}

  // Who meets there.
  const std::vector<std::uint32_t>& members(const Meeting& meeting) const { return groups_[meeting.group]; }

  const std::vector<std::vector<std::uint32_t>>& groups() const { return groups_; }

  // The meetings that are complete now, as the last members of their groups are there; valid until the next call. A rank arrives with all of its class. Where its
  // ranks are in several groups, and those who meet them are classes whose ranks sit there in the same order, the leaders meet for all of them; else these
  // classes are dissolved first. memory: of a run on weights. Precondition: they are members.
  using Dissolves = std::function<void(std::uint32_t leader)>;
  std::span<Meeting> arrive(std::uint16_t rank, Stream stream, const Op& op, SymbolicMemory* memory, const Dissolves& dissolves);

  // What the ranks' calls differ in: "kind", "dtype", "size", "operator" or "root"; null if in nothing.
  const char* misfit(const Meeting& meeting) const;

  // Precondition: no misfit. An element of a result is written where every element that goes into it is. devices: they compute.
  void perform(const Meeting& meeting, Devices* devices = nullptr);
  // Likewise, on weights.
  void perform(const Meeting& meeting, SymbolicMemory& memory, const SymbolicMemory::Leaves& leaves);

  // A meeting that is over: its memory is used again.
  void recycle(Meeting&& meeting) { spare_.push_back(std::move(meeting)); }

  // What every member calls there.
  MismatchRecord mismatch(const Meeting& meeting, const char* what) const;
  // What every rank stands at.
  DeadlockRecord deadlock() const;

  // Whether the rank, or one of its class, stands at a receive of what was not sent yet.
  bool awaits_sender(std::uint16_t rank) const;

  // A class of which some stand at a receive of what was sent, and others at one of what was not, is dissolved. Whether there is one.
  bool part_receivers(const Dissolves& dissolves) const;

  // No rank waits at a collective.
  bool idle() const { return meetings_.empty(); }

  CollectiveRecord record_of(std::uint16_t rank, std::uint32_t call, std::uint32_t event) const;

  // The first collective, in the order of meetings, at which the rank waits for others.
  std::optional<CollectiveRecord> awaited_by(std::uint16_t rank) const;

 private:
  const CollectiveCall& call_of(const Meeting& meeting, std::uint16_t rank) const { return program_of(rank).collectives[meeting.rank[rank].call]; }
  // Which it may have in common with others.
  const Program& program_of(std::uint32_t rank) const { return ranks_[classes_.leader(rank)].program; }
  std::optional<std::uint32_t> late_sender(std::uint32_t rank) const;
  Meeting& meeting_of(std::uint32_t group, const CollectiveCall& call);
  void arrive_alone(Meeting& meeting, std::uint32_t rank, const Arrival& arrival) const;
  void arrive_in(std::uint32_t group, const CollectiveCall& call, std::span<const std::uint32_t> others, std::uint32_t rank, const Arrival& arrival);
  bool sit_alike(const Meeting& meeting) const;
  const std::vector<SymbolicParticipant>& participants(const Meeting& meeting);
  Dtype dtype_of(std::uint16_t rank, Slice slice) const { return program_of(rank).buffers[slice.buffer].dtype; }
  void mark_results(const Meeting& meeting);
  void run_on_host(const Meeting& meeting);
  void run_on(Devices& devices, const Meeting& meeting);
  RangeSet written_after(const Meeting& meeting, const CollectiveCall& first);
  void mark_written(std::uint16_t rank, std::uint32_t index, const CollectiveCall& call, const RangeSet& whole);

  std::vector<Rank>& ranks_;
  const RankClasses& classes_;
  std::vector<std::vector<std::uint32_t>> groups_;
  CollectiveArithmetic arithmetic_;
  std::vector<Meeting> meetings_;  // in the order in which their first rank came
  std::vector<Meeting> complete_;
  std::vector<Meeting> spare_;
  std::vector<CollectiveBuffers> buffers_;
  std::vector<Participant> participants_;
  std::vector<SymbolicParticipant> symbolic_;
};

}  // namespace gradledger
