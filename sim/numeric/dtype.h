// The storage types of gradients, accumulators, wires, flags and counts.
#pragma once

#include <cstdint>
#include <string_view>

namespace gradledger {

enum class Dtype : std::uint8_t { float32, bfloat16, float16, float64, uint8, int32 };

inline constexpr int dtype_count = 6;

constexpr std::uint32_t size_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::float32: return 4;
    case Dtype::bfloat16: return 2;
    case Dtype::float16: return 2;
    case Dtype::float64: return 8;
    case Dtype::uint8: return 1;
    case Dtype::int32: return 4;
  }
  return 0;
}

// "fp32", "bf16", "fp16", "fp64", "uint8": the names of DeepSpeed's configuration.
constexpr std::string_view name_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::float32: return "fp32";
    case Dtype::bfloat16: return "bf16";
    case Dtype::float16: return "fp16";
    case Dtype::float64: return "fp64";
    case Dtype::uint8: return "uint8";
    case Dtype::int32: return "int32";
  }
  return "";
}

}  // namespace gradledger
