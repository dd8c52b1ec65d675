#include "audit/yaml_file.h"

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include "sim/base/files.h"
#include "sim/base/limits.h"
#include "sim/scenario/json_reader.h"

namespace gradledger::audit {
namespace {

using nlohmann::json;

constexpr std::size_t nodes_max = 1u << 16;  // aliases count each time

struct TooLarge {};

class Conversion {
 public:
  explicit Conversion(Document& out) : out_(out) {}

  json value(const YAML::Node& node, const std::string& pointer, std::size_t depth) {
    if (++nodes_ > nodes_max || depth > limits::json_depth_max) throw TooLarge();
    const YAML::Mark mark = node.Mark();
    if (!mark.is_null()) out_.places[pointer] = {static_cast<std::size_t>(mark.line) + 1, static_cast<std::size_t>(mark.column) + 1};
    if (node.IsMap()) {
      json object = json::object();
      for (const auto& entry : node) {
        const std::string key = entry.first.as<std::string>();
        object[key] = value(entry.second, pointer + "/" + pointer_token(key), depth + 1);
      }
      return object;
    }
    if (node.IsSequence()) {
      json array = json::array();
      for (const auto& entry : node) array.push_back(value(entry, pointer + "/" + std::to_string(array.size()), depth + 1));
      return array;
    }
    return node.IsScalar() ? scalar(node) : json(nullptr);
  }

 private:
  static json scalar(const YAML::Node& node) {
    const std::string text = node.Scalar();
    if (node.Tag() == "!") return text;  // quoted
    std::int64_t whole = 0;
    double number = 0;
    bool truth = false;
    if (YAML::convert<std::int64_t>::decode(node, whole)) return whole;
    if (YAML::convert<double>::decode(node, number)) return number;
    if (YAML::convert<bool>::decode(node, truth)) return truth;
    return text;
  }

  Document& out_;
  std::size_t nodes_ = 0;
};

}  // namespace

Result<Document> read_yaml(const std::filesystem::path& path) {
  const auto text = read_file(path, configuration_bytes_max);
  if (!text) return text.error();
  Document out{path.string(), {}, {}};
  try {
    out.json = Conversion(out).value(YAML::Load(*text), "", 0);
  } catch (const TooLarge&) {
    return InputError{path.string(), fmt::format("is nested too deeply or holds too much; expected at most {} values", nodes_max)};
  } catch (const YAML::Exception& error) {
    return InputError{fmt::format("{}:{}:{}", path.string(), error.mark.line + 1, error.mark.column + 1), "is not YAML: " + error.msg};
  }
  return out;
}

}  // namespace gradledger::audit
