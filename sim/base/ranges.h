// A set of half-open element ranges, ordered and merged. Tracks which elements of a buffer were written: nearly always one range, which
// needs no memory of its own.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

namespace gradledger {

struct Range {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;

  bool operator==(const Range&) const = default;
  bool empty() const { return begin >= end; }
};

class RangeSet {
 public:
  void clear() {
    one_ = {};
    many_.clear();
  }
  bool empty() const { return many_.empty() && one_.empty(); }
  std::vector<Range> ranges() const {
    if (!many_.empty()) return many_;
    return one_.empty() ? std::vector<Range>{} : std::vector<Range>{one_};
  }

  bool covers(Range r) const {
    if (r.empty() || (one_.begin <= r.begin && r.end <= one_.end)) return true;
    return !many_.empty() && covered_by_many(r);
  }

  void add(Range r) {
    if (covers(r)) return;
    if (many_.empty()) {
      if (one_.empty()) {
        one_ = r;
        return;
      }
      if (r.begin <= one_.end && one_.begin <= r.end) {
        one_ = {std::min(one_.begin, r.begin), std::max(one_.end, r.end)};
        return;
      }
    }
    add_to_many(r);
  }

  void remove(Range r) {
    if (r.empty() || empty()) return;
    if (many_.empty() && (r.begin <= one_.begin || r.end >= one_.end)) {  // what is left is one
      if (r.begin <= one_.begin) one_.begin = std::max(one_.begin, r.end);
      else one_.end = std::min(one_.end, r.begin);
      if (one_.empty()) one_ = {};
      return;
    }
    std::vector<Range> kept;
    for (const Range& x : ranges()) {
      const Range left{x.begin, std::min(x.end, r.begin)}, right{std::max(x.begin, r.end), x.end};
      if (!left.empty()) kept.push_back(left);
      if (!right.empty()) kept.push_back(right);
    }
    assign(std::move(kept));
  }

  // The first part of `r` that is not in the set.
  std::optional<Range> first_gap(Range r) const {
    std::uint64_t at = r.begin;
    for (const Range& x : ranges()) {
      if (x.end <= at) continue;
      if (at >= r.end) break;
      if (x.begin > at) return Range{at, std::min(x.begin, r.end)};
      at = x.end;
    }
    if (at < r.end) return Range{at, r.end};
    return std::nullopt;
  }

 private:
  bool covered_by_many(Range r) const {
    const auto it = std::lower_bound(many_.begin(), many_.end(), r.begin, [](const Range& a, std::uint64_t b) { return a.end <= b; });
    return it != many_.end() && it->begin <= r.begin && r.end <= it->end;
  }

  void add_to_many(Range r) {
    std::vector<Range> all = ranges();
    auto first = std::lower_bound(all.begin(), all.end(), r.begin, [](const Range& a, std::uint64_t b) { return a.end < b; });
    auto last = first;
    while (last != all.end() && last->begin <= r.end) {
      r.begin = std::min(r.begin, last->begin);
      r.end = std::max(r.end, last->end);
      ++last;
    }
    all.insert(all.erase(first, last), r);
    assign(std::move(all));
  }

  void assign(std::vector<Range> ranges) {
    one_ = ranges.empty() ? Range{} : ranges.front();
    if (ranges.size() < 2) ranges.clear();
    many_ = std::move(ranges);
  }

  Range one_;                // the first range
  std::vector<Range> many_;  // all of them, where there are several
};

}  // namespace gradledger
