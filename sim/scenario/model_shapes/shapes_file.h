// Shapes of a model out of a file: a list that people write, or the header of a file of weights.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "sim/base/result.h"
#include "sim/scenario/model_shapes/published.h"

namespace gradledger {

namespace limits {
inline constexpr std::uint64_t safetensors_header_bytes_max = 100'000'000;  // the format's own
inline constexpr std::uint64_t shapes_numel_max = 1ull << 50;               // of all tensors, before anybody asks what can be held
}  // namespace limits

// What the end of the name says:
// ".safetensors"             the header alone is read, and tensors come as their data lies in the file; those of whole numbers are no parameters
// ".safetensors.index.json"  the headers of the files that it names, beside it
// anything else              a list: "name sizes..." a line, the product of the sizes being the elements, "#" before what is not read
// Errors: one, with the file and the line or the tensor; no tensor, one of no elements, a name twice or too long, and more than a model may have.
Result<std::vector<TensorShape>> read_shapes(const std::filesystem::path& path);

}  // namespace gradledger
