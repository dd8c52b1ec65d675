#include "sim/scenario/identity.h"

#include <algorithm>
#include <cstdio>
#include <span>

#include <nlohmann/json.hpp>

#include "sim/base/hash.h"
#include "sim/scenario/parse.h"

namespace gradledger {
namespace {

// Blocks hold lists of events too: theirs are sorted first.
nlohmann::json sorted_events(nlohmann::json node) {
  if (!node.is_structured()) return node;
  for (nlohmann::json& inner : node) inner = sorted_events(std::move(inner));
  const bool of_events = node.is_array() && std::all_of(node.begin(), node.end(), [](const nlohmann::json& item) { return item.is_object(); });
  if (of_events) std::sort(node.begin(), node.end());
  return node;
}

}  // namespace

std::string content_identity(const Scenario& scenario) {
  nlohmann::json document = to_json(scenario);
  for (const char* key : {"$schema", "name", "note", "source", "covers", "twin_of", "allow_open", "expect"}) document.erase(key);
  document["engine"].erase("as_of");
  document["script"] = sorted_events(std::move(document["script"]));
  return hash_digits(document.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace));
}

std::string hash_digits(std::string_view text) {
  TraceHash hash;
  hash.add_bytes(std::as_bytes(std::span(text)));
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(hash.value()));
  return digits;
}

}  // namespace gradledger
