// A rank's memory: buffers with true storage, poison where nothing was written, and the count of bytes held.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "sim/base/contract.h"
#include "sim/base/ranges.h"
#include "sim/program/program.h"

namespace gradledger {

inline constexpr std::byte poison{0xFF};  // NaN in every floating type

struct Storage {
  std::vector<std::byte> bytes;  // kept over releases
  RangeSet written;
  std::uint64_t held = 0;      // bytes, while it is live
  std::uint64_t declared = 0;  // bytes of the buffer
  bool live = false;
  bool allocated_before = false;
  bool poisoned = false;  // all of it

  bool holds(Slice slice) const { return live && written.covers({slice.offset, slice.offset + slice.numel}); }
};

class RankMemory {
 public:
  // Room for the program's buffers.
  void prepare(const std::vector<BufferDeclaration>& buffers) {
    if (storages_.size() < buffers.size()) storages_.resize(buffers.size());
    for (std::size_t b = prepared_; b < buffers.size(); ++b) storages_[b].declared = std::uint64_t{buffers[b].numel} * size_of(buffers[b].stored);
    prepared_ = buffers.size();
  }
  void reset();
  void start_over() { prepared_ = 0; }  // another program's buffers are to come

  // From the next allocation on: bytes are counted and what is written is known, but none are held. Precondition: nothing is live.
  void count_only(bool counts_only) { counts_only_ = counts_only; }

  // Whether it was allocated before, since the last reset().
  bool allocate(const BufferDeclaration& declaration, BufferId buffer);
  void release(BufferId buffer);

  Storage& storage(BufferId buffer) {
    expects(buffer < storages_.size(), "an operation names a buffer that was not declared");
    return storages_[buffer];
  }
  const Storage& storage(BufferId buffer) const {
    expects(buffer < storages_.size(), "a buffer is looked at that was not declared");
    return storages_[buffer];
  }

  // Where a slice lies. Precondition: it fits its buffer. Memory that was released, or is not allocated yet, is poison.
  std::byte* at(Slice slice, Dtype dtype) {
    Storage& s = storage(slice.buffer);
    const std::size_t width = size_of(dtype);
    const std::size_t end = (static_cast<std::size_t>(slice.offset) + slice.numel) * width;
    expects(!s.live || end <= s.bytes.size(), "an operation reaches outside its buffer");
    // Streams race, and the allocation is still to come. All of it at once: who asks for two parts holds both.
    if (end > s.bytes.size()) s.bytes.resize(std::max<std::size_t>(end, s.declared), poison);
    return s.bytes.data() + slice.offset * width;
  }

  // The target's written ranges become those of the source (same length), as a copy makes them.
  void copy_written(Slice target, Slice source) {
    if (storage(source.buffer).holds(source)) storage(target.buffer).written.add({target.offset, target.offset + target.numel});
    else copy_gaps(target, source);
  }
  // Elements of the target that were not written in the source too are unwritten from now on.
  void intersect_written(Slice target, Slice source) {
    if (!storage(source.buffer).holds(source)) remove_gaps(target, source);
  }

  std::uint64_t bytes_held() const { return bytes_held_; }

 private:
  void copy_gaps(Slice target, Slice source);
  void remove_gaps(Slice target, Slice source);

  std::vector<Storage> storages_;
  std::size_t prepared_ = 0;  // of the program's buffers
  std::uint64_t bytes_held_ = 0;
  bool counts_only_ = false;
};

}  // namespace gradledger
