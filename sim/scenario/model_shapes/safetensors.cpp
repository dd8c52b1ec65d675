#include "sim/scenario/model_shapes/safetensors.h"

#include <algorithm>
#include <array>
#include <limits>
#include <string>
#include <string_view>
#include <utility>

#include "sim/base/files.h"
#include "sim/scenario/json_reader.h"
#include "sim/scenario/model_shapes/shapes_file.h"

namespace gradledger {
namespace {

using nlohmann::json;

struct StoredDtype {
  std::string_view name;
  std::uint32_t bits;
  bool floating;
};

constexpr StoredDtype stored_dtypes[] = {{"F64", 64, true},    {"F32", 32, true},  {"F16", 16, true},  {"BF16", 16, true}, {"F8_E4M3", 8, true},
                                         {"F8_E5M2", 8, true}, {"I64", 64, false}, {"I32", 32, false}, {"I16", 16, false}, {"I8", 8, false},
                                         {"U64", 64, false},   {"U32", 32, false}, {"U16", 16, false}, {"U8", 8, false},   {"BOOL", 8, false}};

struct StoredTensor {
  TensorShape shape;
  std::uint64_t begin = 0;
  bool floating = true;
};

Result<std::string> header_of(const std::filesystem::path& path) {
  auto opened = InputFile::open(path, std::numeric_limits<std::uint64_t>::max());
  if (!opened) return opened.error();
  InputFile file = std::move(opened).value();
  std::array<char, 8> bytes{};
  const auto read = file.read(bytes);
  if (!read) return read.error();
  if (*read < bytes.size()) return InputError{path.native(), "has " + std::to_string(*read) + " bytes; expected a file of safetensors, which begins with the length of its header"};
  std::uint64_t length = 0;
  for (std::size_t i = bytes.size(); i-- > 0;) length = length << 8 | static_cast<unsigned char>(bytes[i]);
  if (length > limits::safetensors_header_bytes_max || length > file.size() - std::min<std::uint64_t>(file.size(), bytes.size()))
    return InputError{path.native(), "says that its header has " + std::to_string(length) + " bytes; expected no more than the file has, and at most " +
                                         std::to_string(limits::safetensors_header_bytes_max)};
  std::string header(static_cast<std::size_t>(length), '\0');
  const auto got = file.read(header);
  if (!got) return got.error();
  if (*got < header.size()) return InputError{path.native(), "ends in its header; expected " + std::to_string(length) + " bytes of it"};
  return header;
}

bool are_offsets(const json& entry) {
  const auto at = entry.find("data_offsets");
  return at != entry.end() && at->is_array() && at->size() == 2 && (*at)[0].is_number_unsigned() && (*at)[1].is_number_unsigned() && (*at)[0] <= (*at)[1];
}

Result<StoredTensor> tensor_of(const std::string& name, const json& entry, const std::string& where) {
  if (!entry.is_object() || !entry.contains("dtype") || !entry["dtype"].is_string() || !entry.contains("shape") || !entry["shape"].is_array() || !are_offsets(entry))
    return InputError{where, "is no tensor; expected an object with dtype, shape and data_offsets"};
  const std::string dtype = entry["dtype"];
  const auto stored = std::find_if(std::begin(stored_dtypes), std::end(stored_dtypes), [&](const StoredDtype& d) { return d.name == dtype; });
  if (stored == std::end(stored_dtypes))
    return InputError{where + "/dtype", "is " + entry["dtype"].dump() + ", which is not known here; expected one of F32, BF16, F16, F64 and others of safetensors"};
  StoredTensor out{{name, 1, 0}, entry["data_offsets"][0], stored->floating};
  for (const json& size : entry["shape"]) {
    const auto numel = size.is_number_unsigned() ? times(out.shape.numel, size.get<std::uint64_t>()) : std::nullopt;
    if (!numel) return InputError{where + "/shape", "has a size of " + size.dump() + "; expected whole numbers whose product is at most 2^50"};
    out.shape.numel = *numel;
  }
  if (entry["shape"].size() > 1) out.shape.rows = entry["shape"][0];
  const std::uint64_t bytes = entry["data_offsets"][1].get<std::uint64_t>() - out.begin;
  if (bytes != out.shape.numel * stored->bits / 8)
    return InputError{where, "has " + std::to_string(out.shape.numel) + " elements of " + dtype + " in " + std::to_string(bytes) + " bytes; expected " +
                                 std::to_string(out.shape.numel * stored->bits / 8)};
  return out;
}

}  // namespace

std::optional<std::uint64_t> times(std::uint64_t numel, std::uint64_t size) {
  if (size != 0 && numel > limits::shapes_numel_max / size) return std::nullopt;
  return numel * size;
}

Result<std::vector<TensorShape>> shapes_of_safetensors(const std::filesystem::path& path) {
  const auto header = header_of(path);
  if (!header) return header.error();
  const auto document = read_json(*header);
  if (!document) return InputError{path.native(), "has a header that cannot be read: " + document.error().text()};
  if (!document->is_object()) return InputError{path.native(), "has a header that is no object; expected one of tensors by name"};
  std::vector<StoredTensor> tensors;
  for (const auto& [name, entry] : document->items()) {
    if (name == "__metadata__") continue;
    auto tensor = tensor_of(name, entry, path.native() + ", /" + pointer_token(name));
    if (!tensor) return tensor.error();
    if (tensor->floating) tensors.push_back(std::move(tensor).value());
  }
  std::stable_sort(tensors.begin(), tensors.end(), [](const StoredTensor& a, const StoredTensor& b) { return a.begin < b.begin; });
  std::vector<TensorShape> out;
  for (StoredTensor& tensor : tensors) out.push_back(std::move(tensor.shape));
  return out;
}

}  // namespace gradledger
