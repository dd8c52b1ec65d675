#include "search/draw/variants.h"

#include <string>
#include <vector>

#include "sim/scenario/spelling.h"

namespace gradledger::search {

std::span<const Variant> variants() { return default_framework().search_space()->variants(); }

Result<const Variant*> variant_named(std::string_view name, std::string_view where) {
  std::vector<std::string> names;
  for (const Framework* framework : frameworks()) {
    if (!framework->search_space()) continue;
    for (const auto& part : {framework->search_space()->variants(), framework->search_space()->further_variants()})
      for (const Variant& variant : part) {
        if (variant.name == name) return &variant;
        names.emplace_back(variant.name);
      }
  }
  std::string known;
  for (const std::string& n : names) known += (known.empty() ? "" : ", ") + n;
  return InputError{std::string(where), "\"" + std::string(name) + "\" is no engine; expected one of " + known + suggestion(name, names)};
}

const Framework& framework_of(const Variant& variant) {
  Scenario world;
  variant.apply(world);
  return gradledger::framework_of(world);
}

}  // namespace gradledger::search
