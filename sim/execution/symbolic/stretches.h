// A buffer as a piecewise map from elements to linear forms: as many pieces as it takes, whatever the number of elements.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "sim/base/contract.h"
#include "sim/execution/symbolic/forms.h"

namespace gradledger {

inline constexpr std::int64_t no_origin = INT64_MIN;  // of forms without terms

// How much further on the same stretch lies on the next rank of a class (sim/execution/rank_classes.h): a number in a list of them. 0: it lies where it does.
using PaceId = std::uint32_t;

// Elements [begin, end) of a slice, counted from its start. Element x holds the form of gradient element x + origin, all parameters one after
// the other; terms of the form may lie further away by their own shift.
struct Stretch {
  std::uint64_t begin = 0, end = 0;
  FormId form = LinearForms::poison;
  PaceId pace = 0;
  std::int64_t origin = no_origin;

  bool operator==(const Stretch&) const = default;
  bool holds_as(const Stretch& other) const { return form == other.form && origin == other.origin && pace == other.pace; }
};

// Sorted, without gaps, neighbours different.
using Stretches = std::vector<Stretch>;

struct Extent {
  std::uint64_t begin = 0, end = 0;
};

// These elements hold what a stretch does, as a reader counts whose element 0 is its element `by`.
inline Stretch moved(Extent to, const Stretch& of, std::int64_t by) { return {to.begin, to.end, of.form, of.pace, of.origin == no_origin ? no_origin : of.origin + by}; }

inline void append(Stretches& list, const Stretch& next) {
  if (next.begin == next.end) return;
  if (!list.empty() && list.back().holds_as(next)) list.back().end = next.end;
  else list.push_back(next);
}

// How a buffer is kept that holds rows of chunks: chunk by chunk, the rows of each one after the other. What is one stretch of a slice, spread over all
// rows, then stays one.
struct Rows {
  std::vector<std::uint64_t> chunks;
  std::uint64_t rows = 0;

  bool operator==(const Rows&) const = default;
};

// In pieces sorted by where they are kept, which is where they lie but in a buffer of rows.
class PiecewiseBuffer {
 public:
  explicit PiecewiseBuffer(std::uint64_t numel = 0) { clear(numel); }

  // Nobody wrote any of it.
  void clear(std::uint64_t numel) {
    numel_ = numel;
    rows_.reset();
    pieces_.clear();
    if (numel > 0) pieces_.push_back({0, numel});
  }
  // Likewise, and from now on it is kept by chunks. Precondition: the rows fill it.
  void clear_to(std::shared_ptr<const Rows> rows) {
    clear(numel_);
    rows_ = std::move(rows);
  }

  std::uint64_t numel() const { return numel_; }
  // The form of all elements, where it is one without terms.
  std::optional<FormId> alike() const {
    if (pieces_.size() != 1 || pieces_.front().origin != no_origin) return std::nullopt;
    return pieces_.front().form;
  }
  const std::shared_ptr<const Rows>& rows() const { return rows_; }

  void read(std::uint64_t offset, std::uint64_t numel, Stretches& out) const {
    out.clear();
    if (numel > 0 && pieces_.size() == 1) {  // most often, rows or not
      expects(offset + numel <= pieces_.front().end, "an operation reaches outside its buffer");
      if (!rows_ || pieces_.front().origin == no_origin) return out.push_back(moved({0, numel}, pieces_.front(), static_cast<std::int64_t>(offset)));
    }
    each_kept(offset, numel, [&](std::uint64_t at, std::uint64_t kept, std::uint64_t count) { read_kept(kept, count, at, out); });
    expects(numel == 0 || (!out.empty() && out.back().end == numel), "an operation reaches outside its buffer");
  }

  // Precondition: they cover what they replace, from its start.
  void write(std::uint64_t offset, const Stretches& in) {
    if (in.empty() || in.back().end == 0) return;
    expects(offset + in.back().end <= numel_, "an operation reaches outside its buffer");
    if (!rows_) return write_kept(offset, in);
    std::size_t i = 0;
    Stretches part;
    each_kept(offset, in.back().end, [&](std::uint64_t at, std::uint64_t kept, std::uint64_t count) {
      part.clear();
      for (std::uint64_t done = at; done < at + count;) {
        const std::uint64_t end = std::min(in[i].end, at + count);
        append(part, moved({done - at, end - at}, in[i], static_cast<std::int64_t>(at)));
        done = end;
        if (in[i].end == done) ++i;
      }
      write_kept(kept, part);
    });
  }

  // All of it, as it is kept.
  void read_all(Stretches& out) const { out = pieces_; }
  void write_all(const Stretches& in) { write_kept(0, in); }

  std::size_t pieces() const { return pieces_.size(); }
  const Stretches& kept() const { return pieces_; }
  // What it holds, each of it changed.
  template <class Change>
  void change(Change&& change) {
    Stretches before;
    before.swap(pieces_);
    for (const Stretch& piece : before) append(pieces_, change(piece));
  }
  // Other forms in the place of those that it holds, with the same origins.
  template <class Change>
  void change_forms(Change&& change) {
    for (Stretch& piece : pieces_) piece.form = change(piece.form);
  }

 private:
  // Where elements [offset, offset + numel) are kept: use(from `offset` on, kept at, how many), in order.
  template <class Use>
  void each_kept(std::uint64_t offset, std::uint64_t numel, Use&& use) const {
    if (!rows_) return use(0, offset, numel);
    std::uint64_t row_numel = 0;
    for (const std::uint64_t chunk : rows_->chunks) row_numel += chunk;
    for (std::uint64_t row = row_numel == 0 ? 0 : offset / row_numel, begin = row * row_numel; begin < offset + numel; ++row, begin += row_numel) {
      std::uint64_t in_row = begin, before = 0;  // where the chunk lies; elements kept before those of its part
      for (const std::uint64_t chunk : rows_->chunks) {
        const std::uint64_t from = std::max(in_row, offset), to = std::min(in_row + chunk, offset + numel);
        if (from < to) use(from - offset, before + row * chunk + (from - in_row), to - from);
        in_row += chunk;
        before += rows_->rows * chunk;
      }
    }
  }

  void read_kept(std::uint64_t kept, std::uint64_t count, std::uint64_t at, Stretches& out) const {
    for (auto piece = first_behind(kept); piece != pieces_.end() && piece->begin < kept + count; ++piece)
      append_as_kept(out, moved({std::max(piece->begin, kept) - kept + at, std::min(piece->end, kept + count) - kept + at}, *piece,
                                static_cast<std::int64_t>(kept) - static_cast<std::int64_t>(at)));
  }

  // Pieces of one buffer are apart already, but for those of several rows.
  void append_as_kept(Stretches& out, const Stretch& next) const {
    if (rows_) append(out, next);
    else out.push_back(next);
  }

  void write_kept(std::uint64_t offset, const Stretches& in) {
    const std::uint64_t end = offset + in.back().end;
    expects(!pieces_.empty() && end <= pieces_.back().end, "an operation reaches outside its buffer");
    if (offset == 0 && end == pieces_.back().end) {
      if (in.size() == 1 && pieces_.size() == 1) {
        pieces_.front() = in.front();
        return;
      }
      pieces_.clear();
      for (const Stretch& s : in) append(pieces_, s);
      return;
    }
    const auto from = first_behind(offset);
    if (in.size() == 1 && from->begin == offset && from->end == end && stays_apart(from, moved({from->begin, from->end}, in.front(), -static_cast<std::int64_t>(offset)))) return;
    auto to = from;
    while (to != pieces_.end() && to->end <= end) ++to;
    thread_local Stretches fresh;  // keeps its memory
    fresh.clear();
    if (from != pieces_.begin()) append(fresh, *std::prev(from));
    if (from != pieces_.end() && from->begin < offset) append(fresh, moved({from->begin, offset}, *from, 0));
    for (const Stretch& s : in) append(fresh, moved({s.begin + offset, s.end + offset}, s, -static_cast<std::int64_t>(offset)));
    auto rest = to;
    if (to != pieces_.end()) {
      append(fresh, moved({std::max(to->begin, end), to->end}, *to, 0));
      ++rest;
    }
    const auto begin = from == pieces_.begin() ? from : std::prev(from);
    const auto in_place = std::min(fresh.size(), static_cast<std::size_t>(rest - begin));
    const auto left = fresh.begin() + static_cast<std::ptrdiff_t>(in_place);
    const auto at = std::copy(fresh.begin(), left, begin);
    if (left == fresh.end()) pieces_.erase(at, rest);
    else pieces_.insert(at, left, fresh.end());
  }

  // Whether a piece that is given another form is still another one than its neighbours, as it must be; else it is left as it was.
  bool stays_apart(Stretches::iterator piece, const Stretch& next) {
    if ((piece != pieces_.begin() && std::prev(piece)->holds_as(next)) || (std::next(piece) != pieces_.end() && std::next(piece)->holds_as(next))) return false;
    *piece = next;
    return true;
  }

  // The first piece that ends behind an element.
  Stretches::const_iterator first_behind(std::uint64_t element) const {
    return std::upper_bound(pieces_.begin(), pieces_.end(), element, [](std::uint64_t e, const Stretch& s) { return e < s.end; });
  }
  Stretches::iterator first_behind(std::uint64_t element) {
    return std::upper_bound(pieces_.begin(), pieces_.end(), element, [](std::uint64_t e, const Stretch& s) { return e < s.end; });
  }

  std::uint64_t numel_ = 0;
  std::shared_ptr<const Rows> rows_;
  Stretches pieces_;
};

}  // namespace gradledger
