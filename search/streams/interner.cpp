#include "search/streams/interner.h"

#include <algorithm>

#include "sim/base/contract.h"
#include "sim/base/hash.h"

namespace gradledger::search {

Interner::Id Interner::intern(std::span<const std::byte> bytes) {
  const std::size_t slot = slot_of(bytes);
  if (slots_[slot] != none) return slots_[slot];
  expects(size() < none, "more byte strings than there are numbers");
  const auto id = static_cast<Id>(size());
  pool_.insert(pool_.end(), bytes.begin(), bytes.end());
  begins_.push_back(pool_.size());
  slots_[slot] = id;
  if (2 * size() > slots_.size()) grow();
  return id;
}

std::size_t Interner::slot_of(std::span<const std::byte> bytes) const {
  TraceHash hash;
  hash.add_bytes(bytes);
  for (std::size_t slot = hash.value() & (slots_.size() - 1);; slot = (slot + 1) & (slots_.size() - 1))
    if (slots_[slot] == none || std::ranges::equal(of(slots_[slot]), bytes)) return slot;
}

void Interner::grow() {
  slots_.assign(2 * slots_.size(), none);
  for (Id id = 0; id < size(); ++id) slots_[slot_of(of(id))] = id;
}

}  // namespace gradledger::search
