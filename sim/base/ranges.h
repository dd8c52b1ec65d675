// A set of half-open element ranges, ordered and merged. Tracks which elements of a buffer were written.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

namespace gradledger {

struct Range {
  std::uint32_t begin = 0;
  std::uint32_t end = 0;

  bool operator==(const Range&) const = default;
  bool empty() const { return begin >= end; }
};

class RangeSet {
 public:
  void clear() { ranges_.clear(); }
  bool empty() const { return ranges_.empty(); }
  const std::vector<Range>& ranges() const { return ranges_; }

  bool covers(Range r) const {
    if (r.empty()) return true;
    if (!ranges_.empty() && ranges_.front().begin <= r.begin && r.end <= ranges_.front().end) return true;
    const auto it = first_ending_after(r.begin);
    return it != ranges_.end() && it->begin <= r.begin && r.end <= it->end;
  }

  void add(Range r) {
    if (r.empty() || covers(r)) return;
    auto first = std::lower_bound(ranges_.begin(), ranges_.end(), r.begin, [](const Range& a, std::uint32_t b) { return a.end < b; });
    auto last = first;
    while (last != ranges_.end() && last->begin <= r.end) {
      r.begin = std::min(r.begin, last->begin);
      r.end = std::max(r.end, last->end);
      ++last;
    }
    ranges_.insert(ranges_.erase(first, last), r);
  }

  void remove(Range r) {
    if (r.empty()) return;
    std::vector<Range> kept;
    for (const Range& x : ranges_) {
      if (x.begin < r.begin) kept.push_back({x.begin, std::min(x.end, r.begin)});
      if (x.end > r.end) kept.push_back({std::max(x.begin, r.end), x.end});
    }
    std::erase_if(kept, [](const Range& x) { return x.empty(); });
    ranges_ = std::move(kept);
  }

  // The first part of `r` that is not in the set.
  std::optional<Range> first_gap(Range r) const {
    std::uint32_t at = r.begin;
    for (auto it = first_ending_after(at); it != ranges_.end() && at < r.end; ++it) {
      if (it->begin > at) return Range{at, std::min(it->begin, r.end)};
      at = std::max(at, it->end);
    }
    if (at < r.end) return Range{at, r.end};
    return std::nullopt;
  }

 private:
  std::vector<Range>::const_iterator first_ending_after(std::uint32_t at) const {
    return std::lower_bound(ranges_.begin(), ranges_.end(), at, [](const Range& a, std::uint32_t b) { return a.end <= b; });
  }

  std::vector<Range> ranges_;
};

}  // namespace gradledger
