// Ranks whose engines have written the very same program so far, operation by operation, so that one of them runs for all: their leader. Each engine
// writes for itself; the program alone decides who stays in a class. A rank that leaves it goes on as its leader stands, and runs by itself. Where ranks of a
// class are in different groups of a family, each calls in its own what their leader calls in its.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "sim/base/contract.h"
#include "sim/execution/group_families.h"

namespace gradledger {

class RankClasses {
 public:
  // Each rank by itself.
  explicit RankClasses(std::size_t ranks) : leader_(ranks), place_(ranks, 0), members_(ranks) { std::iota(leader_.begin(), leader_.end(), 0U); }

  std::uint32_t leader(std::uint32_t rank) const { return leader_[rank]; }
  bool leads(std::uint32_t rank) const { return leader_[rank] == rank; }
  template <class Is>
  bool all_leaders(Is&& is) const {
    for (std::uint32_t r = 0; r < leader_.size(); ++r)
      if (leads(r) && !is(r)) return false;
    return true;
  }
  // Those that it runs for, beside itself, sorted.
  std::span<const std::uint32_t> members(std::uint32_t leader) const { return members_[leader]; }
  std::uint64_t size(std::uint32_t leader) const { return 1 + members_[leader].size(); }
  // How many places a rank lies behind its leader: what ranks of a class hold may lie so many times as far on.
  std::int64_t places(std::uint32_t rank) const { return place_[rank] - place_[leader_[rank]]; }
  std::int64_t places_between(std::uint32_t rank, std::uint32_t other) const { return place_[other] - place_[rank]; }

  // From now on classes may span groups of a family.
  void span(GroupFamilies families) { families_ = std::move(families); }
  const GroupFamilies& families() const { return families_; }
  // In which group a rank calls what its leader calls in this one.
  std::uint32_t group_for(std::uint32_t rank, std::uint32_t of_leader) const {
    if (leads(rank) || families_.alone(of_leader)) return of_leader;
    const GroupFamilies::Seat* const seat = families_.seat(rank, of_leader);
    return seat ? seat->group : of_leader;
  }
  // Whether all of a class call in one group what their leader calls in it.
  bool share(std::uint32_t leader, std::uint32_t group) const {
    if (members_[leader].empty() || families_.alone(group)) return true;
    return std::all_of(members_[leader].begin(), members_[leader].end(), [&](std::uint32_t member) { return group_for(member, group) == group; });
  }

  // Precondition: it leads nobody, and ranks join in order.
  void join(std::uint32_t rank, std::uint32_t leader) {
    expects(members_[rank].empty() && (members_[leader].empty() || members_[leader].back() < rank), "a rank joins a class out of turn");
    leader_[rank] = leader;
    members_[leader].push_back(rank);
  }
  // By itself from now on.
  void leave(std::uint32_t rank) {
    std::vector<std::uint32_t>& all = members_[leader_[rank]];
    all.erase(std::lower_bound(all.begin(), all.end(), rank));
    leader_[rank] = rank;
  }
  // Its members, each by itself from now on.
  std::vector<std::uint32_t> take_members(std::uint32_t leader) {
    for (const std::uint32_t rank : members_[leader]) leader_[rank] = rank;
    return std::exchange(members_[leader], {});
  }
  // One place for each, in order. Precondition: nothing that they hold depends on places.
  void place_in_order(std::uint32_t leader) {
    std::int64_t place = place_[leader] = 0;
    for (const std::uint32_t rank : members_[leader]) place_[rank] = ++place;
  }

 private:
  std::vector<std::uint32_t> leader_;
  std::vector<std::int64_t> place_;
  std::vector<std::vector<std::uint32_t>> members_;  // by leader
  GroupFamilies families_;
};

}  // namespace gradledger
