#include "sim/execution/memory.h"

#include <cstring>
#include <optional>
#include <utility>

namespace gradledger {
namespace {

void fill_with_poison(Storage& s) {
  if (!s.poisoned && !s.bytes.empty()) std::memset(s.bytes.data(), std::to_integer<int>(poison), s.bytes.size());
  s.poisoned = true;
}

}  // namespace

void RankMemory::reset() {
  for (Storage& s : storages_) {
    if (s.live) {
      s.live = false;
      s.poisoned = false;
      fill_with_poison(s);
    }
    s.written.clear();
    s.allocated_before = false;
  }
  bytes_held_ = 0;
}

bool RankMemory::allocate(const BufferDeclaration& declaration, BufferId buffer) {
  Storage& s = storage(buffer);
  if (s.live) {  // its release is still to come on another stream: an allocator hands the memory out none the less
    bytes_held_ -= s.held;
    s.poisoned = false;
  }
  const std::size_t bytes = static_cast<std::size_t>(declaration.numel) * size_of(declaration.stored);
  bytes_held_ += bytes;
  s.held = bytes;
  s.live = true;
  const bool again = std::exchange(s.allocated_before, true);
  if (counts_only_) {
    s.written.clear();
    return again;
  }
  if (s.bytes.size() != bytes) {
    s.bytes.resize(bytes);
    s.poisoned = false;
  }
  fill_with_poison(s);
  s.poisoned = false;  // from the first write on, which is soon
  s.written.clear();
  return again;
}

void RankMemory::release(BufferId buffer) {
  Storage& s = storage(buffer);
  if (!s.live) return;  // streams race, and an allocation was overtaken
  if (!counts_only_) fill_with_poison(s);
  s.written.clear();
  s.live = false;
  bytes_held_ -= s.held;
}

void RankMemory::copy_gaps(Storage& to, Slice target, const Storage& from, Slice source) {
  RangeSet& written = to.written;
  const std::vector<Range> ranges = from.live ? from.written.ranges() : std::vector<Range>{};
  written.remove({target.offset, target.offset + target.numel});
  for (const Range& r : ranges) {
    const std::uint64_t begin = std::max(r.begin, source.offset);
    const std::uint64_t end = std::min(r.end, source.offset + source.numel);
    if (begin < end) written.add({begin - source.offset + target.offset, end - source.offset + target.offset});
  }
}

void RankMemory::remove_gaps(Storage& to, Slice target, const Storage& from, Slice source) {
  RangeSet& written = to.written;
  const std::uint64_t end = source.offset + source.numel;
  for (std::uint64_t at = source.offset; at < end;) {
    const auto gap = from.live ? from.written.first_gap({at, end}) : std::optional<Range>({at, end});
    if (!gap) return;
    written.remove({gap->begin - source.offset + target.offset, gap->end - source.offset + target.offset});
    at = gap->end;
  }
}

}  // namespace gradledger
