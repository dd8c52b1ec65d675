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
  std::uint64_t held = 0;        // bytes, while it is live
  std::uint64_t declared = 0;    // bytes of the buffer
  Dtype dtype = Dtype::float32;  // that elements are stored in
  std::uint8_t element_bytes = 4;
  bool live = false;
  bool allocated_before = false;
  bool poisoned = false;  // all of it

  bool holds(Slice slice) const { return live && written.covers({slice.offset, slice.offset + slice.numel}); }

  // Where a slice of it lies. Precondition: it fits. Memory that was released, or is not allocated yet, is poison.
  std::byte* at(Slice slice) {
    const std::size_t end = (static_cast<std::size_t>(slice.offset) + slice.numel) * element_bytes;
    expects(!live || end <= bytes.size(), "an operation reaches outside its buffer");
    // Streams race, and the allocation is still to come. All of it at once: who asks for two parts holds both.
    if (end > bytes.size()) bytes.resize(std::max<std::size_t>(end, declared), poison);
    return bytes.data() + slice.offset * element_bytes;
  }
};

class RankMemory {
 public:
  // Room for the program's buffers.
  void prepare(const std::vector<BufferDeclaration>& buffers) {
    if (storages_.size() < buffers.size()) storages_.resize(buffers.size());
    for (; prepared_ < buffers.size(); ++prepared_) {
      Storage& s = storages_[prepared_];
      s.dtype = buffers[prepared_].stored;
      s.element_bytes = static_cast<std::uint8_t>(size_of(s.dtype));
      s.declared = buffers[prepared_].numel * s.element_bytes;
    }
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

  // Where a slice lies, as Storage::at() has it.
  std::byte* at(Slice slice) { return storage(slice.buffer).at(slice); }

  // The target's written ranges become those of the source (same length), as a copy makes them.
  static void copy_written(Storage& to, Slice target, const Storage& from, Slice source) {
    if (from.holds(source)) to.written.add({target.offset, target.offset + target.numel});
    else copy_gaps(to, target, from, source);
  }
  // Elements of the target that were not written in the source too are unwritten from now on.
  static void intersect_written(Storage& to, Slice target, const Storage& from, Slice source) {
    if (!from.holds(source)) remove_gaps(to, target, from, source);
  }

  std::uint64_t bytes_held() const { return bytes_held_; }

 private:
  static void copy_gaps(Storage& to, Slice target, const Storage& from, Slice source);
  static void remove_gaps(Storage& to, Slice target, const Storage& from, Slice source);

  std::vector<Storage> storages_;
  std::size_t prepared_ = 0;  // of the program's buffers
  std::uint64_t bytes_held_ = 0;
  bool counts_only_ = false;
};

}  // namespace gradledger
