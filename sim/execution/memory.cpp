#include "sim/execution/memory.h"

#include <cstring>

#include "sim/base/contract.h"

namespace gradledger {
namespace {

constexpr int poison = 0xFF;  // NaN in every floating type

}  // namespace

void RankMemory::allocate(const BufferDeclaration& declaration, BufferId buffer) {
  Storage& s = storage(buffer);
  expects(!s.live, "a live buffer is allocated again");
  const std::size_t bytes = static_cast<std::size_t>(declaration.numel) * size_of(declaration.dtype);
  s.bytes.resize(bytes);
  if (bytes > 0) std::memset(s.bytes.data(), poison, bytes);
  s.written.clear();
  s.live = true;
  bytes_held_ += bytes;
}

void RankMemory::release(BufferId buffer) {
  Storage& s = storage(buffer);
  expects(s.live, "a buffer is released that is not live");
  if (!s.bytes.empty()) std::memset(s.bytes.data(), poison, s.bytes.size());
  s.written.clear();
  s.live = false;
  bytes_held_ -= s.bytes.size();
}

void RankMemory::adopt(BufferId target, BufferId source) {
  storage(std::max(target, source));  // no reference below moves
  Storage& to = storage(target);
  Storage& from = storage(source);
  expects(!to.live && from.live, "a buffer adopts memory although it has some, or there is none to adopt");
  std::swap(to.bytes, from.bytes);
  std::swap(to.written, from.written);
  to.live = true;
  from.live = false;
  from.written.clear();
}

std::byte* RankMemory::at(Slice slice, Dtype dtype) {
  Storage& s = storage(slice.buffer);
  const std::size_t width = size_of(dtype);
  expects((static_cast<std::size_t>(slice.offset) + slice.numel) * width <= s.bytes.size(), "an operation reaches outside its buffer");
  return s.bytes.data() + slice.offset * width;
}

void RankMemory::copy_written(Slice target, Slice source) {
  storage(std::max(target.buffer, source.buffer));
  const Storage& from = storage(source.buffer);
  Storage& to = storage(target.buffer);
  if (from.holds(source)) {
    to.written.add({target.offset, target.offset + target.numel});
    return;
  }
  const std::vector<Range> ranges = from.live ? from.written.ranges() : std::vector<Range>{};
  to.written.remove({target.offset, target.offset + target.numel});
  for (const Range& r : ranges) {
    const std::uint32_t begin = std::max(r.begin, source.offset);
    const std::uint32_t end = std::min(r.end, source.offset + source.numel);
    if (begin < end) to.written.add({begin - source.offset + target.offset, end - source.offset + target.offset});
  }
}

void RankMemory::intersect_written(Slice target, Slice source) {
  storage(std::max(target.buffer, source.buffer));
  const Storage& from = storage(source.buffer);
  Storage& to = storage(target.buffer);
  if (from.holds(source)) return;
  std::uint32_t at = source.offset;
  const std::uint32_t end = source.offset + source.numel;
  while (at < end) {
    const auto gap = from.live ? from.written.first_gap({at, end}) : std::optional<Range>({at, end});
    if (!gap) return;
    to.written.remove({gap->begin - source.offset + target.offset, gap->end - source.offset + target.offset});
    at = gap->end;
  }
}

}  // namespace gradledger
