#include "sim/scenario/overrides.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include <nlohmann/json.hpp>

#include "sim/scenario/json_reader.h"

namespace gradledger {
namespace {

using nlohmann::json;

constexpr const char* config_pointer = "/engine/config";
constexpr const char* config_option = "--config";

bool is_utf8(const std::string& text) {
  try {
    static_cast<void>(json(text).dump());
    return true;
  } catch (const json::type_error&) {
    return false;
  }
}

// "/zero_optimization/stage" of "zero_optimization.stage". Nothing where it is no pointer, or a key between dots is empty.
std::optional<std::string> pointer_of(const std::string& key) {
  std::string out;
  for (std::size_t begin = 0; begin <= key.size() && !key.starts_with("/");) {
    const std::size_t end = std::min(key.find('.', begin), key.size());
    out += "/" + pointer_token(key.substr(begin, end - begin));
    begin = end + 1;
  }
  if (out.empty()) out = key;
  if (out.find("//") != out.npos || out.ends_with('/')) return std::nullopt;
  try {
    static_cast<void>(json::json_pointer(out));
    return out;
  } catch (const json::parse_error&) {
    return std::nullopt;  // "~2"
  }
}

// A text that is no JSON stands for itself; one that begins as only JSON does is meant to be some.
Result<std::string> json_of(const std::string& value, const std::string& name) {
  const auto read = read_json(value);
  if (read) return read->dump();
  const bool meant = value.find_first_of("{[\"") == 0, is_text = read.error().where.starts_with("line ");
  if (meant || !is_text) return InputError{name, "is no JSON value: " + read.error().text()};
  return json(value).dump();
}

// Below an object or an entry of an array; null where there is none.
json* inner(json& node, const std::string& token) {
  if (node.is_object()) return node.contains(token) ? &node[token] : nullptr;
  if (!node.is_array()) return nullptr;
  std::size_t index = 0;
  const auto [end, error] = std::from_chars(token.data(), token.data() + token.size(), index);
  return error == std::errc{} && end == token.data() + token.size() && index < node.size() ? &node[index] : nullptr;
}

std::optional<InputError> put(json& document, Override& what) {
  const json::json_pointer whole(what.pointer);
  json* node = &document;
  std::string way;
  std::vector<std::string> tokens;
  for (json::json_pointer rest = whole; !rest.empty(); rest.pop_back()) tokens.insert(tokens.begin(), rest.back());
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    json* next = inner(*node, tokens[i]);
    if (!next && !node->is_object())
      return InputError{what.name(), "leads through " + way + ", which is " + node->dump().substr(0, 60) +
                                         (node->is_array() ? "; expected the number of one of its entries" : "; expected a key of an object")};
    way += "/" + pointer_token(tokens[i]);
    if (!next) {
      if (what.made.empty()) what.made = way;
      next = &((*node)[tokens[i]] = json::object());
    }
    node = next;
  }
  *node = json::parse(what.value);
  return std::nullopt;
}

bool is_within(const std::string& pointer, const std::string& place) { return pointer.starts_with(place) && (pointer.size() == place.size() || pointer[place.size()] == '/'); }

}  // namespace

std::string Override::name() const { return option == config_option ? option + " " + argument.substr(0, argument.find('=')) : option; }

Override as_of_override(const std::string& release) { return {"--as-of", release, "/engine/as_of", json(release).dump(), {}}; }

Result<Override> config_override(const std::string& text) {
  const std::size_t equals = text.find('=');
  if (equals == text.npos || equals == 0) return InputError{config_option, "is \"" + text + "\"; expected KEY=VALUE, as zero_optimization.stage=2"};
  const std::string key = text.substr(0, equals), name = std::string(config_option) + " " + key;
  if (!is_utf8(text)) return InputError{config_option, "is not UTF-8; expected KEY=VALUE in UTF-8"};
  const auto pointer = pointer_of(key);
  if (!pointer) return InputError{config_option, "has the key \"" + key + "\"; expected keys with dots between them, as zero_optimization.stage, or a JSON pointer"};
  const auto value = json_of(text.substr(equals + 1), name);
  if (!value) return value.error();
  return Override{config_option, text, config_pointer + *pointer, *value, {}};
}

void override_document(json& document, std::vector<Override>& overrides, ErrorList& errors) {
  const bool has_engine = document.is_object() && document.contains("engine") && document["engine"].is_object();
  const bool has_config = has_engine && document["engine"].contains("config") && document["engine"]["config"].is_object();
  for (Override& one : overrides)
    if (one.option == config_option ? has_config : has_engine)
      if (const auto error = put(document, one)) errors.add(*error);
}

InputError named_by_options(InputError error, const std::vector<Override>& overrides) {
  // The last one holds.
  for (auto it = overrides.rbegin(); it != overrides.rend(); ++it) {
    if (is_within(error.where, it->pointer)) error.where = it->name() + (error.where.size() > it->pointer.size() ? ": " + error.where.substr(it->pointer.size()) : "");
    else if (!it->made.empty() && is_within(error.where, it->made)) error.where = it->name() + ": " + error.where;
    else continue;
    return error;
  }
  return error;
}

}  // namespace gradledger
