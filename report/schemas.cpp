#include "report/schemas.h"

#include <algorithm>

#include <nlohmann/json.hpp>

namespace gradledger::report {
namespace {

using nlohmann::ordered_json;

constexpr std::string_view common = "common", refers_to_common = "common.schema.json#/definitions/", refers_to_itself = "#/definitions/";

const EmbeddedSchema* find(std::string_view name) {
  const auto all = embedded_schemas();
  const auto found = std::find_if(all.begin(), all.end(), [&](const EmbeddedSchema& s) { return s.name == name; });
  return found == all.end() ? nullptr : &*found;
}

// Names under which a schema has a definition of its own stay its own: no two files define the same name.
void take_in(ordered_json& node, const ordered_json& from, ordered_json& definitions) {
  if (node.is_object() && node.contains("$ref")) {
    const std::string to = node["$ref"];
    const bool common_one = to.starts_with(refers_to_common);
    const std::string name = to.substr(common_one ? refers_to_common.size() : refers_to_itself.size());
    node["$ref"] = std::string(refers_to_itself) + name;
    if (from.contains(name) && !definitions.contains(name)) {
      ordered_json definition = from[name];
      definitions[name] = true;  // a place, before what it refers to in turn
      take_in(definition, from, definitions);
      definitions[name] = std::move(definition);
    }
    return;
  }
  if (node.is_structured())
    for (ordered_json& inner : node) take_in(inner, from, definitions);
}

}  // namespace

std::string title_of(const EmbeddedSchema& schema) { return ordered_json::parse(schema.text).at("title"); }

std::optional<std::string> schema_text(std::string_view name) {
  const EmbeddedSchema* schema = find(name);
  if (!schema) return std::nullopt;
  ordered_json out = ordered_json::parse(schema->text);
  if (name != common) {
    const ordered_json shared = ordered_json::parse(find(common)->text).at("definitions");
    ordered_json own = out.value("definitions", ordered_json::object()), taken = ordered_json::object();
    out.erase("definitions");
    take_in(own, shared, taken);
    take_in(out, shared, taken);
    own.update(taken);
    if (!own.empty()) out["definitions"] = std::move(own);
  }
  return out.dump(2) + "\n";
}

}  // namespace gradledger::report
