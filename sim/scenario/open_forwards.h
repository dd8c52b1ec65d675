// The explicit forwards of each rank's open window, which later backwards are of.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace gradledger {

class OpenForwards {
 public:
  using Order = std::vector<std::uint32_t>;  // parameters whose gradients are ready first

  explicit OpenForwards(std::uint32_t ranks) : of_rank_(ranks) {}

  std::size_t count(std::uint32_t rank) const { return of_rank_[rank].size(); }
  void add(std::uint32_t rank) { of_rank_[rank].emplace_back(); }
  // The window is over.
  void forget(std::uint32_t rank) { of_rank_[rank].clear(); }

  // Autograd goes through the graph of the forward: a backward of it that says nothing of its order has that of the first.
  // Precondition: there is such a forward.
  void give_order(std::uint32_t rank, std::uint32_t forward, std::map<std::uint32_t, Order>& by_rank) {
    std::optional<Order>& first = of_rank_[rank][forward];
    const auto own = by_rank.find(rank);
    if (!first) first = own == by_rank.end() ? Order{} : own->second;
    else if (own == by_rank.end() && !first->empty()) by_rank[rank] = *first;
  }

 private:
  std::vector<std::vector<std::optional<Order>>> of_rank_;  // by rank, then by forward: the first backward's; none before it
};

}  // namespace gradledger
