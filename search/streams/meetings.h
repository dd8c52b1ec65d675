// Which operations of the ranks make up one collective, and what it writes. Who meets whom is in the programs: no order changes it.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "search/streams/interner.h"
#include "sim/execution/collectives.h"
#include "sim/execution/rank.h"

namespace gradledger::search {

class Meetings {
 public:
  struct Member {
    std::uint32_t rank = 0;
    std::uint32_t op = no_index;  // no_index: it never calls
    Stream stream = Stream::host;
  };

  // groups: members by id, sorted. Ranks and contents outlive this. Precondition: ranks that meet make the same call.
  Meetings(std::span<const Rank> ranks, std::vector<std::vector<std::uint32_t>> groups, CollectiveArithmetic arithmetic, Interner& contents);

  // The members of the collective at which an operation of a rank takes part, in the order of its group.
  std::span<const Member> members(std::uint32_t rank, std::uint32_t op) const { return meetings_[meeting_of_[rank][call(rank, op)]].members; }

  // What each member's output holds afterwards, given what each contributed; no number where its output is not written.
  static constexpr Interner::Id not_written = 0xFFFFFFFFu;
  const std::vector<Interner::Id>& results(std::uint32_t rank, std::uint32_t op, std::vector<Interner::Id> inputs);

 private:
  struct Meeting {
    std::uint32_t group = 0;
    std::vector<Member> members;
  };

  std::uint32_t call(std::uint32_t rank, std::uint32_t op) const { return ranks_[rank].program.ops[op].index; }
  const CollectiveCall& call_of(const Member& member) const { return ranks_[member.rank].program.collectives[call(member.rank, member.op)]; }
  std::vector<Interner::Id> compute(const Meeting& meeting, const std::vector<Interner::Id>& inputs);

  std::span<const Rank> ranks_;
  std::vector<std::vector<std::uint32_t>> groups_;
  CollectiveArithmetic arithmetic_;
  Interner& contents_;
  std::vector<Meeting> meetings_;
  std::vector<std::vector<std::uint32_t>> meeting_of_;  // by rank and call
  std::map<std::pair<std::uint32_t, std::vector<Interner::Id>>, std::vector<Interner::Id>> results_;
};

}  // namespace gradledger::search
