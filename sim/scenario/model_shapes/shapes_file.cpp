#include "sim/scenario/model_shapes/shapes_file.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "sim/base/files.h"
#include "sim/base/limits.h"
#include "sim/scenario/json_reader.h"
#include "sim/scenario/model_shapes/safetensors.h"

namespace gradledger {
namespace {

using nlohmann::json;
using Shapes = std::vector<TensorShape>;

constexpr std::string_view blanks = " \t\r\v\f";

std::string_view next_word(std::string_view& line) {
  line.remove_prefix(std::min(line.find_first_not_of(blanks), line.size()));
  const std::string_view word = line.substr(0, line.find_first_of(blanks));
  line.remove_prefix(word.size());
  return word;
}

// A line without its comment; nothing where it says nothing.
std::optional<Result<TensorShape>> shape_of_line(std::string_view line, const std::string& where) {
  line = line.substr(0, line.find('#'));
  const std::string_view name = next_word(line);
  if (name.empty()) return std::nullopt;
  TensorShape out{std::string(name), 1, 0};
  std::size_t sizes = 0;
  std::uint64_t first = 0;
  for (std::string_view word = next_word(line); !word.empty(); word = next_word(line), ++sizes) {
    std::uint64_t size = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), size);
    if (error != std::errc{} || end != word.data() + word.size())
      return InputError{where, "has \"" + std::string(word.substr(0, 40)) + "\" for a size; expected a name and whole numbers, as in: embed.weight 50257 768"};
    const auto numel = times(out.numel, size);
    if (!numel) return InputError{where, "has more elements than any model; expected sizes whose product is at most 2^50"};
    out.numel = *numel;
    if (sizes == 0) first = size;
  }
  if (sizes > 1) out.rows = first;
  if (sizes == 0) return InputError{where, "has a name and no size; expected the number of elements behind it, as in: embed.weight 50257 768"};
  return out;
}

Result<Shapes> shapes_of_list(const std::filesystem::path& path) {
  const auto text = read_file(path);
  if (!text) return text.error();
  if (text->find('\0') != std::string::npos) return InputError{path.native(), "is no text; expected a list of shapes, or a file whose name ends in .safetensors"};
  Shapes out;
  std::size_t number = 0;
  for (std::string_view rest = *text; !rest.empty();) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    const auto shape = shape_of_line(line, path.native() + ":" + std::to_string(++number));
    if (!shape) continue;
    if (!*shape) return shape->error();
    if (out.size() == limits::parameters_max) return InputError{path.native(), "has more than " + std::to_string(limits::parameters_max) + " tensors; expected at most so many"};
    out.push_back(**shape);
  }
  return out;
}

// Which file beside the index holds which tensors.
Result<std::map<std::string, std::set<std::string>>> files_of_index(const std::filesystem::path& path) {
  const auto text = read_file(path);
  if (!text) return text.error();
  const auto document = read_json(*text);
  if (!document) return InputError{path.native(), document.error().text()};
  if (!document->is_object() || !document->contains("weight_map") || !(*document)["weight_map"].is_object())
    return InputError{path.native(), "has no weight_map; expected an index of files of safetensors"};
  std::map<std::string, std::set<std::string>> out;
  for (const auto& [name, file] : (*document)["weight_map"].items()) {
    const std::string beside = file.is_string() ? file.get<std::string>() : "";
    if (beside.empty() || beside.find('/') != beside.npos)
      return InputError{path.native() + ", /weight_map/" + pointer_token(name), "is " + file.dump() + "; expected the name of a file beside the index"};
    out[beside].insert(name);
  }
  return out;
}

// The files one behind the other, in the order of their names.
Result<Shapes> shapes_of_index(const std::filesystem::path& path) {
  const auto files = files_of_index(path);
  if (!files) return files.error();
  Shapes out;
  for (const auto& [file, names] : *files) {
    const auto part = shapes_of_safetensors(path.parent_path() / file);
    if (!part) return part.error();
    const std::size_t before = out.size();
    for (const TensorShape& shape : *part)
      if (names.contains(shape.name)) out.push_back(shape);
    if (out.size() == before) return InputError{path.native(), "names " + json(*names.begin()).dump() + " in " + file + ", which has no such tensor; expected one that it has"};
    if (out.size() > limits::parameters_max) break;
  }
  return out;
}

std::optional<InputError> problem_of(const Shapes& shapes, const std::string& file) {
  if (shapes.empty()) return InputError{file, "has no tensor; expected at least one"};
  if (shapes.size() > limits::parameters_max)
    return InputError{file, "has " + std::to_string(shapes.size()) + " tensors; expected at most " + std::to_string(limits::parameters_max)};
  std::set<std::string_view> names;
  std::uint64_t total = 0;
  for (const TensorShape& shape : shapes) {
    const std::string name = json(shape.name.substr(0, 60)).dump(-1, ' ', true, json::error_handler_t::replace);
    if (shape.name.empty() || shape.name.size() > limits::name_length_max)
      return InputError{file, "has a name of " + std::to_string(shape.name.size()) + " characters, " + name + "; expected from 1 to " + std::to_string(limits::name_length_max)};
    if (std::any_of(shape.name.begin(), shape.name.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }))
      return InputError{file, "names a tensor " + name + ", with a control character; expected a name that can be printed"};
    if (!names.insert(shape.name).second) return InputError{file, "names two tensors " + name + "; expected each name once"};
    if (shape.numel == 0) return InputError{file, "has tensor " + name + " without elements; expected at least one in each"};
    total += shape.numel;
    if (shape.numel > limits::shapes_numel_max || total > limits::shapes_numel_max) return InputError{file, "has more elements than any model; expected at most 2^50"};
  }
  return std::nullopt;
}

}  // namespace

Result<std::vector<TensorShape>> read_shapes(const std::filesystem::path& path) {
  const std::string& name = path.native();
  auto shapes = name.ends_with(".safetensors") ? shapes_of_safetensors(path) : name.ends_with(".safetensors.index.json") ? shapes_of_index(path) : shapes_of_list(path);
  if (!shapes) return shapes;
  if (auto problem = problem_of(*shapes, name)) return *problem;
  return shapes;
}

}  // namespace gradledger
