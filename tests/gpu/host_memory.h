// Slots of memory for implementations that run on the CPU.
#pragma once

#include <algorithm>
#include <new>

#include "tests/gpu/kernels_under_test.h"

namespace gradledger::testing {

// Each slot is an allocation of its own of exactly the placed size, so that the address sanitizer sees what leaves it.
class HostMemory {
 public:
  std::byte* place(std::size_t slot, const std::vector<std::byte>& bytes) {
    if (slots_.size() <= slot) slots_.resize(slot + 1);
    slots_[slot].reset(static_cast<std::byte*>(::operator new(std::max<std::size_t>(bytes.size(), 1), alignment)));
    std::copy(bytes.begin(), bytes.end(), slots_[slot].get());
    return slots_[slot].get();
  }
  void read(std::size_t slot, std::vector<std::byte>& bytes) const { std::copy_n(slots_[slot].get(), bytes.size(), bytes.begin()); }

 private:
  static constexpr std::align_val_t alignment{256};
  struct Free {
    void operator()(std::byte* bytes) const { ::operator delete(bytes, alignment); }
  };
  std::vector<std::unique_ptr<std::byte, Free>> slots_;
};

}  // namespace gradledger::testing
