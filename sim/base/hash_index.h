// What is kept in a list, found by its hash: one entry for each element of the list, in its order. The list itself, and what it holds, are the caller's.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace gradledger {

class HashIndex {
 public:
  static constexpr std::uint32_t none = 0xFFFFFFFFu;

  std::size_t size() const { return hashes_.size(); }

  // Of an element with that hash that is the one: is(index). none, where there is no such one.
  template <class Is>
  std::uint32_t find(std::uint64_t hash, Is&& is) const {
    if (places_.empty()) return none;
    for (std::size_t at = first(hash); places_[at] != none; at = next(at))
      if (hashes_[places_[at]] == hash && is(places_[at])) return places_[at];
    return none;
  }

  // Of the element that comes next in the list, whose index it returns.
  std::uint32_t add(std::uint64_t hash) {
    hashes_.push_back(hash);
    if (2 * hashes_.size() > places_.size()) make_places();
    else place(size() - 1);
    return static_cast<std::uint32_t>(size() - 1);
  }

  // Those from this one on are no longer in the list.
  void cut(std::size_t size) {
    for (; hashes_.size() > size; hashes_.pop_back()) {  // the last one comes last on its way: nothing is looked for behind it
      std::size_t at = first(hashes_.back());
      while (places_[at] + 1 != hashes_.size()) at = next(at);
      places_[at] = none;
    }
  }

  // Empty again; what it holds keeps its memory.
  void clear() {
    hashes_.clear();
    std::fill(places_.begin(), places_.end(), none);
  }

  void swap(HashIndex& other) {
    hashes_.swap(other.hashes_);
    places_.swap(other.places_);
  }

 private:
  std::size_t first(std::uint64_t hash) const { return hash & (places_.size() - 1); }
  std::size_t next(std::size_t at) const { return (at + 1) & (places_.size() - 1); }
  void place(std::size_t index) {
    std::size_t at = first(hashes_[index]);
    while (places_[at] != none) at = next(at);
    places_[at] = static_cast<std::uint32_t>(index);
  }
  void make_places() {
    places_.assign(std::max<std::size_t>(16, 2 * places_.size()), none);
    hashes_.reserve(places_.size() / 2);
    for (std::size_t index = 0; index < size(); ++index) place(index);
  }

  std::vector<std::uint64_t> hashes_;
  std::vector<std::uint32_t> places_;  // indices, by hash and then one after the other: a power of two, half of them free at least
};

}  // namespace gradledger
