// Byte strings by number: equal strings have the same number, so that equality is decided once, exactly, and not by a hash.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace gradledger::search {

class Interner {
 public:
  using Id = std::uint32_t;

  Interner() : slots_(64, none) {}

  // The number of a string; numbers count up from 0. Precondition: the bytes are not the interner's own.
  Id intern(std::span<const std::byte> bytes);

  // Valid until the next string is taken in.
  std::span<const std::byte> of(Id id) const { return {pool_.data() + begins_[id], begins_[id + 1] - begins_[id]}; }

  std::size_t size() const { return begins_.size() - 1; }
  std::uint64_t bytes() const { return pool_.capacity() + begins_.capacity() * sizeof(std::uint64_t) + slots_.capacity() * sizeof(Id); }

 private:
  static constexpr Id none = 0xFFFFFFFFu;

  // Where a string is, or where it would go.
  std::size_t slot_of(std::span<const std::byte> bytes) const;
  void grow();

  std::vector<std::byte> pool_;
  std::vector<std::uint64_t> begins_{0};
  std::vector<Id> slots_;  // open addressing; at most half of them are taken
};

}  // namespace gradledger::search
