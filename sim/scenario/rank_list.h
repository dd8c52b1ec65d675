// Ranks in order. Most groups are every n-th rank from one on, which need no memory of their own: in a world of 65,536 ranks each rank has its groups.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace gradledger {

class RankList {
 public:
  RankList() = default;
  RankList(std::vector<std::uint32_t> sorted) : count_(static_cast<std::uint32_t>(sorted.size())), listed_(std::move(sorted)) {}
  static RankList every(std::uint32_t first, std::uint32_t stride, std::uint32_t count) {
    RankList out;
    out.first_ = first;
    out.stride_ = stride;
    out.count_ = count;
    return out;
  }

  std::uint32_t size() const { return count_; }
  std::uint32_t operator[](std::uint32_t i) const { return listed_.empty() ? first_ + i * stride_ : listed_[i]; }
  std::uint32_t front() const { return (*this)[0]; }
  std::uint32_t back() const { return (*this)[count_ - 1]; }
  std::optional<std::uint32_t> place_of(std::uint32_t rank) const {
    std::uint32_t at = 0;
    if (listed_.empty()) at = rank < first_ ? count_ : (rank - first_) / stride_;
    else at = static_cast<std::uint32_t>(std::lower_bound(listed_.begin(), listed_.end(), rank) - listed_.begin());
    return at < count_ && (*this)[at] == rank ? std::optional(at) : std::nullopt;
  }

  class Iterator {
   public:
    Iterator(const RankList& list, std::uint32_t at) : list_(&list), at_(at) {}
    std::uint32_t operator*() const { return (*list_)[at_]; }
    Iterator& operator++() {
      ++at_;
      return *this;
    }
    bool operator==(const Iterator& other) const { return at_ == other.at_; }

   private:
    const RankList* list_;
    std::uint32_t at_;
  };
  Iterator begin() const { return {*this, 0}; }
  Iterator end() const { return {*this, count_}; }

  std::vector<std::uint32_t> listed() const {
    std::vector<std::uint32_t> out;
    out.reserve(count_);
    for (const std::uint32_t rank : *this) out.push_back(rank);
    return out;
  }
  friend bool operator==(const RankList& a, const RankList& b) {
    if (a.count_ != b.count_) return false;
    for (std::uint32_t i = 0; i < a.count_; ++i)
      if (a[i] != b[i]) return false;
    return true;
  }

 private:
  std::uint32_t first_ = 0, stride_ = 1, count_ = 0;
  std::vector<std::uint32_t> listed_;  // empty where the ranks are every stride-th
};

}  // namespace gradledger
