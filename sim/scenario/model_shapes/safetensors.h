// The header of a file of safetensors: eight bytes of length, little end first, then JSON of that length. The data behind it is not read.
// The format is documented at https://huggingface.co/docs/safetensors.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "sim/base/result.h"
#include "sim/scenario/model_shapes/published.h"

namespace gradledger {

// Tensors of floating point, in the order of their data; those of whole numbers and of truth values have no gradient, and are left out.
// Errors: the file, a length that the file or the format's limit does not have, JSON that is none, a tensor that contradicts itself.
Result<std::vector<TensorShape>> shapes_of_safetensors(const std::filesystem::path& path);

// The product; nothing where it is more than limits::shapes_numel_max.
std::optional<std::uint64_t> times(std::uint64_t numel, std::uint64_t size);

}  // namespace gradledger
