#include "sim/scenario/schema.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <valijson/adapters/nlohmann_json_adapter.hpp>
#include <valijson/schema.hpp>
#include <valijson/schema_parser.hpp>
#include <valijson/validator.hpp>

#include "sim/base/error_list.h"
#include "sim/scenario/json_reader.h"
#include "sim/scenario/spelling.h"

namespace gradledger {
namespace {

using nlohmann::json;

// The validator recurses once for each character that a pattern matches, and holds every entry of a list against every other one: the
// reader checks those few strings and lists instead. What holds for one framework's configuration (allOf) that framework checks.
json without_costly_rules(json node) {
  if (node.is_object()) {
    node.erase("pattern");
    node.erase("allOf");
    if (node.contains("items")) node.erase("uniqueItems");
  }
  if (node.is_structured())
    for (json& inner : node) inner = without_costly_rules(std::move(inner));
  return node;
}

const json& rules() {
  static const json out = without_costly_rules(scenario_schema());
  return out;
}

const json& resolve(const json& node) {
  if (!node.contains("$ref")) return node;
  return rules().at(json::json_pointer(node["$ref"].get<std::string>().substr(1)));
}

// What a node refers to, directly or through another: most refer to nothing, and every definition that is copied is compiled.
void add_definitions(const json& node, json& into) {
  if (!node.is_structured()) return;
  if (node.is_object() && node.contains("$ref")) {
    const std::string pointer = node["$ref"].get<std::string>().substr(1), name = pointer.substr(pointer.rfind('/') + 1);
    if (!into.contains(name)) {
      into[name] = rules().at(json::json_pointer(pointer));
      add_definitions(json(into[name]), into);
    }
  }
  for (const json& inner : node) add_definitions(inner, into);
}

// Whether a value fits one node of the schema. Compiled once, for the many values of an array.
class NodeCheck {
 public:
  explicit NodeCheck(const json& node) {
    json compiled = resolve(node);
    json definitions = json::object();
    compiled.erase("definitions");
    add_definitions(compiled, definitions);
    compiled["definitions"] = std::move(definitions);
    const valijson::adapters::NlohmannJsonAdapter adapter(compiled);
    valijson::SchemaParser().populateSchema(adapter, schema_);
  }

  // Stops at the first thing that does not fit, and remembers nothing of it: a large table of nonsense costs no memory.
  bool fits(const json& value) const { return valijson::Validator().validate(schema_, valijson::adapters::NlohmannJsonAdapter(value), nullptr); }

 private:
  valijson::Schema schema_;
};

bool admits_type(const json& node, const json& value) {
  if (!node.contains("type")) return false;
  const json& type = node["type"];
  return type == "object"    ? value.is_object()
         : type == "array"   ? value.is_array()
         : type == "string"  ? value.is_string()
         : type == "boolean" ? value.is_boolean()
                             : value.is_number() && (type == "number" || type == "integer");
}

// The node itself, or the one alternative that is meant for values of this type.
const json& alternative_for(const json& node, const json& value) {
  if (!node.contains("oneOf")) return node;
  const json* chosen = nullptr;
  for (const json& alternative : node["oneOf"]) {
    if (!admits_type(alternative, value)) continue;
    if (chosen) return node;
    chosen = &alternative;
  }
  return chosen ? *chosen : node;
}

// The schema of a member or entry; none where the node says nothing of it.
const json* member(const json& node, const json& value, const std::string& key) {
  if (value.is_array()) return node.contains("items") ? &node["items"] : nullptr;
  if (node.contains("properties") && node["properties"].contains(key)) return &node["properties"][key];
  if (node.contains("additionalProperties") && node["additionalProperties"].is_object()) return &node["additionalProperties"];
  return nullptr;
}

std::vector<std::string> key_list(const json& node) {
  std::vector<std::string> out;
  for (const auto& [key, unused] : node["properties"].items()) out.push_back(key);
  return out;
}

std::string keys_of(const json& node) {
  std::string out;
  for (const std::string& key : key_list(node)) out += (out.empty() ? "" : ", ") + key;
  return out;
}

std::string number_text(const json& number) {
  if (number.is_number_integer()) return number.dump();
  const double value = number.get<double>();
  return value == static_cast<double>(static_cast<std::int64_t>(value)) ? std::to_string(static_cast<std::int64_t>(value)) : number.dump();
}

// "from 1 to 9", of what the node bounds.
std::string range_text(const json& node, const char* minimum, const char* maximum, const char* unit) {
  const bool below = node.contains(minimum), above = node.contains(maximum);
  if (!below && !above) return "";
  const std::string least = below ? number_text(node[minimum]) : "", most = above ? number_text(node[maximum]) : "";
  if (*unit == '\0') return (below ? " from " + least : "") + (above ? " to " + most : "");
  if (below && above) return " of " + (least == most ? least : least + " to " + most) + unit;
  return (below ? " of at least " + least : " of at most " + most) + unit;
}

// What the node admits, in words.
std::string expectation(const json& node) {
  std::string what;
  if (node.contains("enum")) {
    // Where a value has several names, those are listed that are written out.
    for (const json& value : node.value("examples", node["enum"])) what += (what.empty() ? "one of " : ", ") + value.dump();
  } else if (node.contains("type")) {
    const json types = node["type"].is_array() ? node["type"] : json::array({node["type"]});
    for (const json& type : types) {
      const std::string name = type.get<std::string>();
      what += (what.empty() ? "" : " or ") + std::string(name == "integer" || name == "array" || name == "object" ? "an " : name == "null" ? "" : "a ") + name;
    }
  }
  const bool open = node.contains("exclusiveMinimum");
  what += open ? " above " + number_text(node["exclusiveMinimum"]) : range_text(node, "minimum", "maximum", "");
  if (open && node.contains("maximum")) what += ", up to " + number_text(node["maximum"]);
  if (node.contains("exclusiveMaximum")) what += " below " + number_text(node["exclusiveMaximum"]);
  what += range_text(node, "minItems", "maxItems", " entries");
  what += range_text(node, "minLength", "maxLength", " characters");
  if (node.contains("minProperties") && node.contains("properties"))
    what = std::string("an object with ") + (node.value("maxProperties", 0) == 1 ? "exactly" : "at least") + " one of the keys " + keys_of(node);
  else what += range_text(node, "minProperties", "maxProperties", " keys");
  if (!node.contains("description")) return what;
  const std::string description = node["description"].get<std::string>();
  return what.empty() ? description : what + " (" + description + ")";
}

std::string shortened(const json& value) {
  if (value.is_object()) return value.empty() ? "an empty object" : "an object";
  if (value.is_array()) return "an array of " + std::to_string(value.size()) + " entries";
  const std::string text = value.dump(-1, ' ', true);
  return text.size() <= 60 ? text : text.substr(0, 57) + "...";
}

// What helps beyond the list of what would be right.
std::string hint(const json& node, const json& value) {
  if (!value.is_string()) return "";
  const std::string& text = value.get_ref<const std::string&>();
  if (node.value("type", json()) == "boolean" && (text == "True" || text == "true" || text == "False" || text == "false"))
    return std::string("; did you mean ") + (text == "True" || text == "true" ? "true?" : "false?");
  if (text == "auto") return "; \"auto\" is for a launcher to fill in, here every value must be concrete";
  std::vector<std::string> words;
  for (const json& word : node.value("enum", json::array()))
    if (word.is_string()) words.push_back(word);
  return suggestion(text, words);
}

// Walks a value that does not fit, and tells everything in it that does not.
class Walk {
 public:
  // Precondition: `value` does not fit `unresolved`.
  void visit(const json& unresolved, const json& value, const std::string& pointer) {
    const json& node = resolve(unresolved);
    const json& meant = alternative_for(node, value);
    if (&meant != &node) return visit(meant, value, pointer);
    const bool too_long = value.is_array() && value.size() > node.value("maxItems", value.size());
    const std::size_t before = errors_.size();
    if (!too_long && value.is_structured() && (!node.contains("type") || admits_type(node, value))) {
      visit_members(node, value, pointer);
      tell_keys(node, value, pointer);
    }
    if (errors_.size() == before && !errors_.full()) errors_.add({pointer, "is " + shortened(value) + "; expected " + expectation(node) + hint(node, value)});
  }

  std::vector<InputError> take() && { return errors_.all(); }

 private:
  void visit_members(const json& node, const json& value, const std::string& pointer) {
    for (const auto& [key, inner] : value.items()) {
      if (errors_.full()) return;
      const json* rule = member(node, value, key);
      if (rule && !check_of(*rule).fits(inner)) visit(*rule, inner, pointer + "/" + pointer_token(key));
    }
  }

  // Keys that are not known, that are missing, and those of which there can be one.
  void tell_keys(const json& node, const json& value, const std::string& pointer) {
    if (!value.is_object() || !node.contains("properties")) return;
    const std::vector<std::string> known = key_list(node);
    std::set<std::string> meant;
    const bool closed = node.value("additionalProperties", json(true)) == false;
    for (const auto& [key, unused] : value.items()) {
      if (!closed || errors_.full() || node["properties"].contains(key)) continue;
      errors_.add({pointer + "/" + pointer_token(key), "is not a key that is known here; expected one of " + keys_of(node) + suggestion(key, known)});
      meant.insert(closest_of(key, known));
    }
    for (const json& key : node.value("required", json::array())) {
      const std::string name = key.get<std::string>();
      if (!value.contains(name) && !meant.contains(name)) errors_.add({pointer, "lacks " + key.dump() + ": expected " + expectation(resolve(node["properties"][name]))});
    }
    if (meant.empty() && value.size() > 1 && node.value("maxProperties", 0) == 1)
      errors_.add({pointer, "has the keys \"" + value.begin().key() + "\" and \"" + std::next(value.begin()).key() + "\"; expected " + expectation(node)});
  }

  // Compiled once, for all values of the document that it is for.
  const NodeCheck& check_of(const json& rule) { return checks_.try_emplace(&rule, rule).first->second; }

  std::map<const json*, NodeCheck> checks_;
  ErrorList errors_;
};

std::vector<InputError> everything_wrong(const json& rule, const json& value, const std::string& pointer) {
  Walk walk;
  walk.visit(rule, value, pointer);
  return std::move(walk).take();
}

// Each part is compiled once, for all the scenarios that are read.
const NodeCheck& compiled_part(const std::string& pointer, const json& part) {
  static std::mutex mutex;
  static std::map<std::string, NodeCheck> compiled;
  const std::lock_guard lock(mutex);
  return compiled.try_emplace(pointer, part).first->second;
}

}  // namespace

const json& scenario_schema() {
  static const json schema = json::parse(scenario_schema_text());
  return schema;
}

std::vector<InputError> check_against_schema(const json& document) {
  static const NodeCheck whole(rules());
  if (whole.fits(document)) return {};
  return everything_wrong(rules(), document, "");
}

std::vector<InputError> all_against_part(const std::string& schema_pointer, const json& value, const std::string& where) {
  const json& part = rules().at(json::json_pointer(schema_pointer));
  if (compiled_part(schema_pointer, part).fits(value)) return {};
  return everything_wrong(part, value, where);
}

std::optional<InputError> check_against_part(const std::string& schema_pointer, const json& value, const std::string& where) {
  const std::vector<InputError> all = all_against_part(schema_pointer, value, where);
  return all.empty() ? std::nullopt : std::optional(all.front());
}

}  // namespace gradledger
