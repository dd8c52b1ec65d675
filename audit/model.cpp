#include "audit/model.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "audit/json_file.h"
#include "sim/base/limits.h"
#include "sim/scenario/model_shapes/shapes_file.h"
#include "sim/scenario/spelling.h"

namespace gradledger::audit {
namespace {

using nlohmann::json;
using Sizes = std::vector<std::pair<std::string, std::uint64_t>>;

constexpr std::uint64_t model_elements_max = 1ull << 50;

// An embedding, three layers of a few parameters and a head, as parts of a model of 7 billion elements: DeepSpeed's default buckets
// then hold about as much of it as they do in earnest.
constexpr std::uint64_t stand_in_for = 7'000'000'000;
const Sizes stand_in{{"embed", 40}, {"layer0.weight", 48}, {"layer0.bias", 5}, {"layer1.weight", 48}, {"layer1.norm", 3}, {"layer2.weight", 48}, {"head", 40}};

Result<std::uint64_t> product_of(const std::vector<json>& sizes, const std::string& where) {
  std::uint64_t out = 1;
  for (const json& size : sizes) {
    if (!size.is_number_unsigned() || size > model_elements_max || (size > 0 && out > model_elements_max / size.get<std::uint64_t>()))
      return InputError{where, "has a size of " + size.dump() + "; expected whole numbers whose product is at most 2^50"};
    out *= size.get<std::uint64_t>();
  }
  return out;
}

Result<Sizes> sizes_of_file(const std::string& path) {
  const auto document = read_document(path);
  if (!document) return document.error();
  if (!document->json.is_object() || document->json.empty()) return InputError{document->where(""), "is no object of parameters; expected {\"name\": [sizes]}"};
  Sizes out;
  for (const auto& [name, shape] : document->json.items()) {
    const auto numel = product_of(shape.is_array() ? shape.get<std::vector<json>>() : std::vector<json>{shape}, document->where("/" + name));
    if (!numel) return numel.error();
    out.emplace_back(name, *numel);
  }
  return out;
}

Result<Sizes> sizes_of_text(std::string_view text) {
  Sizes out;
  while (!text.empty()) {
    const std::string_view entry = text.substr(0, text.find(','));
    text.remove_prefix(std::min(entry.size() + 1, text.size()));
    const std::size_t equals = entry.find('=');
    std::vector<json> sizes;
    for (std::string_view rest = equals == entry.npos ? "?" : entry.substr(equals + 1); !rest.empty();) {
      std::uint64_t size = 0;
      const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), size);
      rest.remove_prefix(static_cast<std::size_t>(end - rest.data()));
      if (error != std::errc{} || (!rest.empty() && rest.front() != 'x'))
        return InputError{"--model", fmt::format("has \"{}\"; expected NAME=SIZExSIZE,... or a JSON file", entry)};
      rest.remove_prefix(rest.empty() ? 0 : 1);
      sizes.emplace_back(size);
    }
    const auto numel = product_of(sizes, "--model");
    if (!numel) return numel.error();
    if (equals == 0 || sizes.empty()) return InputError{"--model", fmt::format("has \"{}\"; expected NAME=SIZExSIZE,... or a JSON file", entry)};
    out.emplace_back(std::string(entry.substr(0, equals)), *numel);
  }
  return out;
}

json parameters_of(const Sizes& sizes, std::uint64_t shrink) {
  json out = json::array();
  for (const auto& [name, numel] : sizes) out.push_back({{"name", name}, {"numel", numel == 0 ? 0 : std::max<std::uint64_t>(1, numel / shrink)}});
  return out;
}

std::uint64_t total(const Sizes& sizes) {
  std::uint64_t out = 0;
  for (const auto& [name, numel] : sizes) out += numel;
  return out;
}

ModelShapes without_a_model() {
  ModelShapes out;
  out.parameters = out.listed = parameters_of(stand_in, 1);
  out.stand_in = true;
  out.shrink = stand_in_for / total(stand_in);
  out.says = fmt::format("a stand-in of {} parameters; buckets hold as much of it as of a model of 7 billion elements (--model gives yours)", stand_in.size());
  return out;
}

std::string true_size(std::span<const TensorShape> shapes) {
  return fmt::format("{} parameters, {} elements at their true sizes, {} layers", shapes.size(), numel_of(shapes), layers_of(shapes).size());
}

std::map<std::string, std::uint64_t> rows_of(std::span<const TensorShape> shapes) {
  std::map<std::string, std::uint64_t> out;
  for (const TensorShape& shape : shapes)
    if (shape.rows > 0) out[shape.name] = shape.rows;
  return out;
}

json listed(std::span<const TensorShape> shapes) {
  json out = json::array();
  for (const TensorShape& shape : shapes) out.push_back({{"name", shape.name}, {"numel", shape.numel}});
  return out;
}

// What can be held is a matter of the limits, which scenarios have too.
std::optional<InputError> too_large(const std::string& text, std::span<const TensorShape> shapes) {
  if (const std::uint64_t numel = numel_of(shapes); numel > limits::model_numel_max)
    return InputError{"--model", fmt::format("{} has {} elements; expected at most {}", text, numel, limits::model_numel_max)};
  const auto large = std::find_if(shapes.begin(), shapes.end(), [](const TensorShape& shape) { return shape.numel > limits::parameter_numel_max; });
  if (large == shapes.end()) return std::nullopt;
  return InputError{"--model", fmt::format("{} has {} elements in {}; expected at most {}", text, large->numel, large->name, limits::parameter_numel_max)};
}

Result<ModelShapes> of_published(const PublishedModel& model) {
  const std::vector<TensorShape>& shapes = shapes_of(model);
  if (const auto error = too_large(std::string(model.name), shapes)) return *error;
  return ModelShapes{.parameters = {{"model", model.name}},
                     .listed = listed(shapes),
                     .shrink = 1,
                     .says = fmt::format("{} ({}): {}", model.name, model.published_as, true_size(shapes)),
                     .hidden_size = model.hidden,
                     .layers = layers_of(shapes),
                     .rows = rows_of(shapes)};
}

Result<ModelShapes> of_shapes_file(const std::string& path) {
  const auto shapes = read_shapes(path);
  if (!shapes) return InputError{"--model", shapes.error().text()};
  if (const auto error = too_large(path, *shapes)) return *error;
  return ModelShapes{.parameters = listed(*shapes),
                     .listed = listed(*shapes),
                     .shrink = 1,
                     .says = fmt::format("{}: {}", path, true_size(*shapes)),
                     .hidden_size = {},
                     .layers = layers_of(*shapes),
                     .rows = rows_of(*shapes)};
}

InputError nothing_of(const std::string& text) {
  std::vector<std::string> names;
  for (const PublishedModel& model : published_models()) names.emplace_back(model.name);
  return {"--model", fmt::format("is \"{}\"; expected a file of shapes, NAME=SIZExSIZE,..., or one of {}{}", text, published_model_names(), suggestion(text, names))};
}

}  // namespace

Result<ModelShapes> model_of(const std::string& text) {
  if (text.empty()) return without_a_model();
  if (const PublishedModel* model = published_model(text)) return of_published(*model);
  const bool file = std::filesystem::exists(text), table = text.ends_with(".json") && !text.ends_with(".index.json");
  if (file && !table) return of_shapes_file(text);
  if (!file && text.find('=') == text.npos) return nothing_of(text);
  const auto sizes = file ? sizes_of_file(text) : sizes_of_text(text);
  if (!sizes) return sizes.error();
  if (sizes->empty() || sizes->size() > limits::parameters_max)
    return InputError{"--model", fmt::format("has {} parameters; expected from 1 to {}", sizes->size(), limits::parameters_max)};
  const std::uint64_t all = total(*sizes);
  if (all == 0 || all > model_elements_max) return InputError{"--model", fmt::format("has {} elements; expected from 1 to 2^50", all)};
  const std::uint64_t shrink = (all + elements_max - 1) / elements_max;
  std::string says = fmt::format("{} parameters, {} elements", sizes->size(), all);
  if (shrink > 1) says += fmt::format("; made {} times smaller, buckets too, with every parameter kept", shrink);
  return ModelShapes{
      .parameters = parameters_of(*sizes, shrink), .listed = parameters_of(*sizes, shrink), .shrink = shrink, .says = std::move(says), .hidden_size = {}, .layers = {}, .rows = {}};
}

}  // namespace gradledger::audit
