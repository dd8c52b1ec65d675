// The interleavings of a program, each once, however often it is asked for.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "sim/base/hash.h"
#include "sim/base/hash_index.h"
#include "sim/program/slice.h"

namespace gradledger {

// Slices cut into as many chunks as there are rows. A row has one chunk of each, in their order: what goes to one rank, or comes from one, lies together.
// Where a slice ends before its last chunk does, the rest of that chunk is nobody's.
struct Interleaving {
  struct Part {
    Slice slice;
    std::uint64_t chunk = 0;  // slice.numel <= rows x chunk

    bool operator==(const Part&) const = default;
  };
  std::vector<Part> parts;
  std::uint32_t rows = 0;

  bool operator==(const Interleaving&) const = default;
  std::uint64_t numel() const {
    std::uint64_t row = 0;
    for (const Part& part : parts) row += part.chunk;
    return row * rows;
  }
  // use(in_rows, in_slice): what lies in both places, in the order of the rows.
  template <class Use>
  void each(Slice rows_of_chunks, Use&& use) const {
    std::uint64_t at = 0;
    for (std::uint64_t row = 0; row < rows; ++row)
      for (const Part& part : parts) {
        const std::uint64_t from = std::min(row * part.chunk, part.slice.numel), count = std::min(part.chunk, part.slice.numel - from);
        if (count > 0) use(rows_of_chunks.part(at, count), part.slice.part(from, count));
        at += part.chunk;
      }
  }
};

class Interleavings {
 public:
  std::size_t size() const { return all_.size(); }
  const Interleaving& operator[](std::size_t index) const { return all_[index]; }

  // Of one that is the same; it becomes the last where there is none. likely: where it is looked for first.
  std::uint32_t index_of(Interleaving of, std::uint32_t likely) {
    if (likely < all_.size() && all_[likely] == of) return likely;
    const std::uint64_t hash = hash_of(of);
    const std::uint32_t known = by_hash_.find(hash, [&](std::uint32_t index) { return all_[index] == of; });
    if (known != HashIndex::none) return known;
    all_.push_back(std::move(of));
    return by_hash_.add(hash);
  }
  // Precondition: there is none that is the same.
  void push_back(const Interleaving& of) {
    all_.push_back(of);
    by_hash_.add(hash_of(of));
  }

  // Those from this number on were never asked for.
  void resize(std::size_t size) {
    all_.resize(size);
    by_hash_.cut(size);
  }
  void clear() {
    all_.clear();
    by_hash_.clear();
  }

 private:
  static std::uint64_t hash_of(const Interleaving& of) {
    PairHash hash;
    hash.add(of.rows, of.parts.size());
    for (const Interleaving::Part& part : of.parts) {
      hash.add(part.slice.buffer, part.slice.offset);
      hash.add(part.slice.numel, part.chunk);
    }
    return hash.value();
  }

  std::vector<Interleaving> all_;
  HashIndex by_hash_;
};

}  // namespace gradledger
