// How people and frameworks write dtypes, in one table. Ours are those of name_of().
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string_view>

#include "sim/numeric/dtype.h"

namespace gradledger {

struct DtypeNames {
  Dtype dtype;
  std::string_view torch;                  // PyTorch's, which it also prints with "torch." before it
  std::array<std::string_view, 2> others;  // PyTorch's shorter one, and what DeepSpeed takes too; "": there is none
};

inline constexpr std::array<DtypeNames, dtype_count> dtype_names{{{Dtype::float32, "float32", {"float", ""}},
                                                                  {Dtype::bfloat16, "bfloat16", {"", "bfp16"}},
                                                                  {Dtype::float16, "float16", {"half", ""}},
                                                                  {Dtype::float64, "float64", {"double", ""}},
                                                                  {Dtype::uint8, "uint8", {"", ""}},
                                                                  {Dtype::int32, "int32", {"int", ""}}}};

constexpr std::string_view torch_name_of(Dtype dtype) { return dtype_names[static_cast<std::size_t>(dtype)].torch; }

// By any of its names: "bf16", "bfloat16", "torch.bfloat16", "bfp16". Nothing for any other text.
constexpr std::optional<Dtype> dtype_named(std::string_view name) {
  constexpr std::string_view package = "torch.";
  const bool of_torch = name.starts_with(package);
  if (of_torch) name.remove_prefix(package.size());
  for (const DtypeNames& names : dtype_names) {
    if (name == names.torch || (!name.empty() && name == names.others[0])) return names.dtype;
    if (!of_torch && !name.empty() && (name == names.others[1] || name == name_of(names.dtype))) return names.dtype;
  }
  return std::nullopt;
}

// Likewise, where only what has fractions will do.
constexpr std::optional<Dtype> floating_dtype_named(std::string_view name) {
  const auto dtype = dtype_named(name);
  return dtype == Dtype::uint8 || dtype == Dtype::int32 ? std::nullopt : dtype;
}

// Likewise, of the three that gradients and weights can have.
constexpr std::optional<Dtype> gradient_dtype_of(std::string_view name) {
  const auto dtype = floating_dtype_named(name);
  return dtype == Dtype::float64 ? std::nullopt : dtype;
}

}  // namespace gradledger
