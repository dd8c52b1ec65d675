// Work over many arrays, or one, cut into pieces of a fixed number of units; one block serves one piece.
#pragma once

#include "gpu/pack.h"

namespace gradledger::gpu {

// Eight packs a thread.
inline constexpr std::size_t units_per_block = std::size_t{threads_per_block} * 8;

constexpr std::size_t blocks_of(std::size_t units) { return (units + units_per_block - 1) / units_per_block; }

// The units of one piece, every thread of its block taking every threads_per_block-th.
template <class Operation>
GRADLEDGER_HD inline void run_piece(const Operation& operation, Packing packing, std::size_t piece, std::size_t thread) {
  const std::size_t end = (piece + 1) * units_per_block;
  if (end < packing.units) packing.units = end;
  run_units(operation, packing, {piece * (units_per_block / threads_per_block), 1, thread, threads_per_block});
}

}  // namespace gradledger::gpu
