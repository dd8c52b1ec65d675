// What the oracle knows of floating-point formats, written from IEEE 754 and not shared with the simulator.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "sim/base/contract.h"
#include "sim/numeric/dtype.h"

namespace gradledger::ref {

struct DtypeFacts {
  int precision;     // significand bits, the implicit one included
  int exponent_max;  // of the largest finite value, 2^exponent_max * (2 - 2^(1 - precision))
  int exponent_min;  // of the smallest normal value

  // Half the distance between 1 and its successor: one rounding changes x by at most unit_roundoff |x|, plus tiny / 2 below the normals.
  double unit_roundoff() const { return std::ldexp(1.0, -precision); }
  double tiny() const { return std::ldexp(1.0, exponent_min - precision + 1); }  // the smallest subnormal
  double largest() const { return std::ldexp(2.0 - std::ldexp(1.0, 1 - precision), exponent_max); }
};

inline DtypeFacts facts_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::float32: return {24, 127, -126};
    case Dtype::bfloat16: return {8, 127, -126};
    case Dtype::float16: return {11, 15, -14};
    case Dtype::float64: return {53, 1023, -1022};
    case Dtype::uint8:
    case Dtype::int32: break;
  }
  expects(false, "flags and counts have no rounding");
  return {};
}

// The stored value, exactly: sign, exponent and fraction fields taken apart. Slow; read_stored is the same by table.
inline double decode_stored(Dtype dtype, const std::byte* at) {
  const DtypeFacts facts = facts_of(dtype);
  const std::uint32_t width = size_of(dtype);
  if (dtype == Dtype::float64) {
    double value;
    std::memcpy(&value, at, width);
    return value;
  }
  std::uint32_t bits = 0;
  std::memcpy(&bits, at, width);
  const int fraction_bits = facts.precision - 1;
  const std::uint32_t exponent_field = (bits >> fraction_bits) & ((1u << (width * 8 - 1 - static_cast<std::uint32_t>(fraction_bits))) - 1);
  const std::uint32_t fraction = bits & ((1u << fraction_bits) - 1);
  const bool negative = (bits >> (width * 8 - 1)) & 1;
  const auto all_ones = static_cast<std::uint32_t>(facts.exponent_max * 2 + 1);
  double magnitude;
  if (exponent_field == all_ones) magnitude = fraction ? std::numeric_limits<double>::quiet_NaN() : std::numeric_limits<double>::infinity();
  else if (exponent_field == 0) magnitude = std::ldexp(static_cast<double>(fraction), facts.exponent_min - fraction_bits);
  else magnitude = std::ldexp(static_cast<double>(fraction | (1u << fraction_bits)), static_cast<int>(exponent_field) - facts.exponent_max - fraction_bits);
  return negative ? -magnitude : magnitude;
}

// decode_stored of n neighbouring elements.
inline void read_stored(Dtype dtype, const std::byte* at, std::size_t n, double* out) {
  if (size_of(dtype) != 2) {
    for (std::size_t i = 0; i < n; ++i) {
      if (dtype == Dtype::float32) {
        float value;
        std::memcpy(&value, at + i * 4, 4);
        out[i] = value;
      } else {
        out[i] = decode_stored(dtype, at + i * size_of(dtype));
      }
    }
    return;
  }
  static const auto table = [](Dtype of) {
    std::vector<double> values(65536);
    for (std::uint32_t bits = 0; bits < values.size(); ++bits) {
      const auto stored = static_cast<std::uint16_t>(bits);
      std::byte bytes[2];
      std::memcpy(bytes, &stored, 2);
      values[bits] = decode_stored(of, bytes);
    }
    return values;
  };
  static const std::vector<double> bf16 = table(Dtype::bfloat16), fp16 = table(Dtype::float16);
  const std::vector<double>& values = dtype == Dtype::bfloat16 ? bf16 : fp16;
  for (std::size_t i = 0; i < n; ++i) {
    std::uint16_t bits;
    std::memcpy(&bits, at + i * 2, 2);
    out[i] = values[bits];
  }
}

}  // namespace gradledger::ref
