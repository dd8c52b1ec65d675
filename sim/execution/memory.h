// A rank's memory: buffers with true storage, poison where nothing was written, and the count of bytes held.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "sim/base/ranges.h"
#include "sim/program/program.h"

namespace gradledger {

struct Storage {
  std::vector<std::byte> bytes;  // keeps its capacity over releases
  RangeSet written;
  bool live = false;

  bool holds(Slice slice) const { return live && written.covers({slice.offset, slice.offset + slice.numel}); }
};

class RankMemory {
 public:
  void reset() {
    storages_.clear();
    bytes_held_ = 0;
  }

  void allocate(const BufferDeclaration& declaration, BufferId buffer);
  void release(BufferId buffer);
  void adopt(BufferId target, BufferId source);

  Storage& storage(BufferId buffer) {
    if (buffer >= storages_.size()) storages_.resize(buffer + 1);
    return storages_[buffer];
  }

  // Where a slice lies. Precondition: the buffer is live or was, and the slice fits it; reads of released memory see poison.
  std::byte* at(Slice slice, Dtype dtype);

  // The target's written ranges become those of the source (same length), as a copy makes them.
  void copy_written(Slice target, Slice source);
  // Elements of the target that were not written in the source too are unwritten from now on.
  void intersect_written(Slice target, Slice source);

  std::uint64_t bytes_held() const { return bytes_held_; }

 private:
  std::vector<Storage> storages_;
  std::uint64_t bytes_held_ = 0;
};

}  // namespace gradledger
