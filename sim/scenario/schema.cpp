#include "sim/scenario/schema.h"

#include <algorithm>
#include <string>
#include <vector>

#include <valijson/adapters/nlohmann_json_adapter.hpp>
#include <valijson/schema.hpp>
#include <valijson/schema_parser.hpp>
#include <valijson/validation_results.hpp>
#include <valijson/validator.hpp>

#include "sim/scenario/json_reader.h"

namespace gradledger {
namespace {

using nlohmann::json;
using Path = std::vector<std::string>;

const valijson::Schema& compiled_schema() {
  static const valijson::Schema& schema = [&]() -> const valijson::Schema& {
    static valijson::Schema out;
    valijson::SchemaParser parser;
    const valijson::adapters::NlohmannJsonAdapter adapter(scenario_schema());
    parser.populateSchema(adapter, out);
    return out;
  }();
  return schema;
}

const json& resolve(const json& node) {
  if (!node.contains("$ref")) return node;
  return scenario_schema().at(json::json_pointer(node["$ref"].get<std::string>().substr(1)));
}

// The schema of a member, looked for in every alternative of the node.
const json* member(const json& unresolved, const std::string& key) {
  const json& node = resolve(unresolved);
  if (node.contains("properties") && node["properties"].contains(key)) return &node["properties"][key];
  if (node.contains("items")) return &node["items"];
  if (node.contains("additionalProperties") && node["additionalProperties"].is_object()) return &node["additionalProperties"];
  for (const char* alternatives : {"oneOf", "anyOf"}) {
    if (!node.contains(alternatives)) continue;
    for (const json& alternative : node[alternatives])
      if (const json* found = member(alternative, key)) return found;
  }
  return nullptr;
}

std::string keys_of(const json& node) {
  std::string out;
  const json& resolved = resolve(node);
  if (!resolved.contains("properties")) return out;
  for (const auto& [key, unused] : resolved["properties"].items()) out += (out.empty() ? "" : ", ") + key;
  return out;
}

std::string number_text(const json& number) {
  if (number.is_number_integer()) return number.dump();
  const double value = number.get<double>();
  return value == static_cast<double>(static_cast<std::int64_t>(value)) ? std::to_string(static_cast<std::int64_t>(value)) : number.dump();
}

// What the node admits, in words.
std::string expectation(const json& unresolved) {
  const json& node = resolve(unresolved);
  std::string what;
  if (node.contains("enum")) {
    for (const json& value : node["enum"]) what += (what.empty() ? "one of " : ", ") + value.dump();
  } else if (node.contains("type")) {
    const json types = node["type"].is_array() ? node["type"] : json::array({node["type"]});
    for (const json& type : types) {
      const std::string name = type.get<std::string>();
      what += (what.empty() ? "" : " or ") + std::string(name == "integer" || name == "array" || name == "object" ? "an " : name == "null" ? "" : "a ") + name;
    }
  }
  const auto bound = [&](const char* key, const char* text) {
    if (node.contains(key)) what += std::string(" ") + text + " " + number_text(node[key]);
  };
  bound("minimum", "from");
  bound("exclusiveMinimum", "above");
  bound("maximum", "to");
  bound("exclusiveMaximum", "below");
  bound("minItems", "of at least this many entries:");
  bound("maxItems", "of at most this many entries:");
  bound("maxLength", "of at most this many characters:");
  if (node.contains("minProperties") && node.value("maxProperties", 0) == 1) what = "an object with exactly one of the keys " + keys_of(node);
  if (!node.contains("description")) return what;
  const std::string description = node["description"].get<std::string>();
  return what.empty() ? description : what + " (" + description + ")";
}

std::string shortened(const json& value) {
  if (value.is_object()) return "an object";
  if (value.is_array()) return "an array of " + std::to_string(value.size()) + " entries";
  const std::string text = value.dump(-1, ' ', true);
  return text.size() <= 60 ? text : text.substr(0, 57) + "...";
}

// The name that a validator's message quotes last; it may itself hold quotes.
std::string quoted(const std::string& message, std::string_view before) {
  const std::size_t begin = message.find(before);
  const std::size_t end = message.rfind('\'');
  if (begin == std::string::npos || end < begin + before.size()) return "";
  return message.substr(begin + before.size(), end - begin - before.size());
}

InputError explain(const json& document, const Path& path, const std::string& message) {
  std::string pointer;
  const json* node = &scenario_schema();
  const json* value = &document;
  for (const std::string& key : path) {
    pointer += "/" + pointer_token(key);
    if (node) node = member(*node, key);
    if (value->is_array()) value = &value->at(std::stoul(key));
    else if (value->is_object()) value = &value->at(key);
  }
  expects(node != nullptr, "a validation error outside the schema");
  if (message.starts_with("Object contains a property")) {
    const std::string keys = keys_of(*node);
    return {pointer + "/" + pointer_token(quoted(message, "constraints: '")), "is not a key that is known here; expected one of " + keys};
  }
  if (message.starts_with("Missing required property")) {
    const std::string key = quoted(message, "property '");
    const json* missing = member(*node, key);
    return {pointer, "lacks \"" + key + "\": expected " + (missing ? expectation(*missing) : "it")};
  }
  return {pointer, "is " + shortened(*value) + "; expected " + expectation(*node)};
}

}  // namespace

const json& scenario_schema() {
  static const json schema = json::parse(scenario_schema_text());
  return schema;
}

std::optional<InputError> check_against_schema(const json& document) {
  valijson::Validator validator;
  valijson::ValidationResults results;
  const valijson::adapters::NlohmannJsonAdapter target(document);
  if (validator.validate(compiled_schema(), target, &results)) return std::nullopt;
  valijson::ValidationResults::Error error;
  while (results.popError(error)) {
    if (error.description.starts_with("Failed to validate")) continue;  // repeats, further out, what was said before
    Path path;
    for (std::size_t i = 1; i < error.context.size(); ++i) path.push_back(error.context[i].substr(1, error.context[i].size() - 2));
    return explain(document, path, error.description);
  }
  return InputError{"", "does not fit the schema"};
}

}  // namespace gradledger
