// What a buffer holds as weights of contributions, and not as numbers: shown by producers that run programs on linear forms.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "sim/base/rational.h"
#include "sim/trace/memory_space.h"
#include "sim/trace/role.h"

namespace gradledger {

// The contributions of backwards [backward_begin, backward_end) on ranks [rank_begin, rank_end), each with one weight. shift: elements of all
// parameters, one after the other, between the one that is held and the one that was due there.
struct WeightTerm {
  std::uint32_t backward_begin = 0, backward_end = 0;
  std::uint32_t rank_begin = 0, rank_end = 0;
  std::int64_t shift = 0;
  Rational weight;
};

// A stretch of a snapshot that holds one linear form: [parameter_offset, parameter_offset + numel) of a parameter.
struct WeightPiece {
  enum class Held : std::uint8_t {
    weights,    // the terms say all
    unwritten,  // memory that nobody wrote or that was freed
    untold,     // a value that is no sum of contributions, or weights beyond what 64-bit fractions hold
  };
  std::uint32_t piece = 0;  // number of the snapshot's stretch that it is a part of
  std::uint32_t parameter = 0;
  std::uint64_t parameter_offset = 0, numel = 0;
  Held held = Held::weights;
  std::uint64_t form = 0;             // within one run: equal where the terms are
  std::int64_t shift = 0;             // of all terms, beyond their own; 0 where elements lie where they must
  std::span<const WeightTerm> terms;  // live until the run is over
  double constant = 0;                // what is added beyond contributions
};

// A snapshot. Weights are those of what is stored, so that a true gradient's are `scale` times as large.
struct WeightObservation {
  std::uint32_t rank = 0;
  std::uint32_t event = 0;
  bool at_end = true;
  std::string_view buffer;
  Role role = Role::scratch;
  double scale = 1.0;
  std::span<const WeightPiece> pieces;
  MemorySpace space = MemorySpace::device;
};

}  // namespace gradledger
