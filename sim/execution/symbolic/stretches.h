// A buffer as a piecewise map from elements to linear forms: as many pieces as it takes, whatever the number of elements.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "sim/base/contract.h"
#include "sim/execution/symbolic/forms.h"

namespace gradledger {

inline constexpr std::int64_t no_origin = INT64_MIN;  // of forms without terms

// Elements [begin, end) of a slice, counted from its start. Element x holds the form of gradient element x + origin, all parameters one after
// the other; terms of the form may lie further away by their own shift.
struct Stretch {
  std::uint64_t begin = 0, end = 0;
  FormId form = LinearForms::poison;
  std::int64_t origin = no_origin;

  bool operator==(const Stretch&) const = default;
};

// Sorted, without gaps, neighbours different.
using Stretches = std::vector<Stretch>;

inline void append(Stretches& list, const Stretch& next) {
  if (next.begin == next.end) return;
  if (!list.empty() && list.back().form == next.form && list.back().origin == next.origin) list.back().end = next.end;
  else list.push_back(next);
}

class PiecewiseBuffer {
 public:
  explicit PiecewiseBuffer(std::uint64_t numel = 0) { clear(numel); }

  // Nobody wrote any of it.
  void clear(std::uint64_t numel) {
    pieces_.clear();
    if (numel > 0) pieces_.push_back({0, numel, LinearForms::poison, no_origin});
  }

  void read(std::uint64_t offset, std::uint64_t numel, Stretches& out) const {
    out.clear();
    for (auto at = first_behind(offset); at != pieces_.end() && at->begin < offset + numel; ++at)
      out.push_back({std::max(at->begin, offset) - offset, std::min(at->end, offset + numel) - offset, at->form, moved(*at, static_cast<std::int64_t>(offset))});
    expects(numel == 0 || (!out.empty() && out.back().end == numel), "an operation reaches outside its buffer");
  }

  // Precondition: they cover what they replace, from its start.
  void write(std::uint64_t offset, const Stretches& in) {
    if (in.empty() || in.back().end == 0) return;
    const std::uint64_t end = offset + in.back().end;
    expects(!pieces_.empty() && end <= pieces_.back().end, "an operation reaches outside its buffer");
    const auto from = first_behind(offset);
    auto to = from;
    while (to != pieces_.end() && to->end <= end) ++to;
    fresh_.clear();
    if (from != pieces_.begin()) append(fresh_, *std::prev(from));
    if (from != pieces_.end() && from->begin < offset) append(fresh_, {from->begin, offset, from->form, from->origin});
    for (const Stretch& s : in) append(fresh_, {s.begin + offset, s.end + offset, s.form, moved(s, -static_cast<std::int64_t>(offset))});
    auto rest = to;
    if (to != pieces_.end()) {
      append(fresh_, {std::max(to->begin, end), to->end, to->form, to->origin});
      ++rest;
    }
    const auto begin = from == pieces_.begin() ? from : std::prev(from);
    const auto at = pieces_.erase(begin, rest);
    pieces_.insert(at, fresh_.begin(), fresh_.end());
  }

  std::size_t pieces() const { return pieces_.size(); }

 private:
  // The first piece that ends behind an element.
  Stretches::const_iterator first_behind(std::uint64_t element) const {
    return std::upper_bound(pieces_.begin(), pieces_.end(), element, [](std::uint64_t e, const Stretch& s) { return e < s.end; });
  }
  Stretches::iterator first_behind(std::uint64_t element) {
    return std::upper_bound(pieces_.begin(), pieces_.end(), element, [](std::uint64_t e, const Stretch& s) { return e < s.end; });
  }
  // As a reader counts whose element 0 is element `by`.
  static std::int64_t moved(const Stretch& s, std::int64_t by) { return s.origin == no_origin ? no_origin : s.origin + by; }

  Stretches pieces_;
  Stretches fresh_;  // of a write
};

}  // namespace gradledger
