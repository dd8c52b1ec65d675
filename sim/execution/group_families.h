// Process groups that share ranks out among them, as the copies of a mesh's shards do: each rank is in one of a family, and what it calls in its own is what
// the others call in theirs.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

namespace gradledger {

class GroupFamilies {
 public:
  struct Seat {
    std::uint32_t rank = 0, group = 0, index = 0;  // in the group
  };

  GroupFamilies() = default;
  // groups: members by id, sorted. Neighbours by id of one size that have no rank in common are a family.
  explicit GroupFamilies(const std::vector<std::vector<std::uint32_t>>& groups) : family_(groups.size()) {
    std::set<std::uint32_t> seated;
    for (std::uint32_t g = 0; g < groups.size(); ++g) {
      const bool joins =
          g > 0 && groups[g].size() == groups[g - 1].size() && std::none_of(groups[g].begin(), groups[g].end(), [&](std::uint32_t r) { return seated.count(r) > 0; });
      if (!joins) {
        seated.clear();
        seats_.emplace_back();
      }
      single_.resize(seats_.size(), true);
      single_.back() = !joins;
      family_[g] = seats_.size() - 1;
      for (std::uint32_t i = 0; i < groups[g].size(); ++i) seats_.back().push_back({groups[g][i], g, i});
      seated.insert(groups[g].begin(), groups[g].end());
    }
    for (std::vector<Seat>& seats : seats_) std::sort(seats.begin(), seats.end(), [](const Seat& a, const Seat& b) { return a.rank < b.rank; });
  }

  // Whether its family has no other group.
  bool alone(std::uint32_t group) const { return group >= family_.size() || single_[family_[group]]; }
  // Where the rank sits in the family of that group; null where it is in none.
  const Seat* seat(std::uint32_t rank, std::uint32_t group) const { return group < family_.size() ? seat_in(seats_[family_[group]], rank) : nullptr; }

  // use(group of a, group of b): of each family in which these differ.
  template <class Use>
  void each_apart(std::uint32_t a, std::uint32_t b, Use&& use) const {
    for (const std::vector<Seat>& seats : seats_) {
      const Seat *of_a = seat_in(seats, a), *of_b = seat_in(seats, b);
      if (of_a && of_b && of_a->group != of_b->group) use(of_a->group, of_b->group);
    }
  }

 private:
  static const Seat* seat_in(const std::vector<Seat>& seats, std::uint32_t rank) {
    const auto at = std::lower_bound(seats.begin(), seats.end(), rank, [](const Seat& s, std::uint32_t r) { return s.rank < r; });
    return at != seats.end() && at->rank == rank ? &*at : nullptr;
  }

  std::vector<std::size_t> family_;       // by group
  std::vector<bool> single_;              // by family
  std::vector<std::vector<Seat>> seats_;  // by family, sorted
};

}  // namespace gradledger
