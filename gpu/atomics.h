// Integer atomics on device memory. Order-free operations only, so that results do not depend on who comes first; on the CPU,
// where a replay runs one thread at a time, plain ones.
#pragma once

#include <cstdint>

#include "sim/numeric/scalar.h"

namespace gradledger::gpu {

GRADLEDGER_HD inline void atomic_add(std::uint64_t* target, std::uint64_t x) {
#ifdef __CUDA_ARCH__
  atomicAdd(reinterpret_cast<unsigned long long*>(target), static_cast<unsigned long long>(x));
#else
  *target += x;
#endif
}

GRADLEDGER_HD inline void atomic_min(std::uint64_t* target, std::uint64_t x) {
#ifdef __CUDA_ARCH__
  atomicMin(reinterpret_cast<unsigned long long*>(target), static_cast<unsigned long long>(x));
#else
  if (x < *target) *target = x;
#endif
}

GRADLEDGER_HD inline void atomic_max(std::uint64_t* target, std::uint64_t x) {
#ifdef __CUDA_ARCH__
  atomicMax(reinterpret_cast<unsigned long long*>(target), static_cast<unsigned long long>(x));
#else
  if (x > *target) *target = x;
#endif
}

}  // namespace gradledger::gpu
