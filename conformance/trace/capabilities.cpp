#include "conformance/trace/capabilities.h"

#include <array>
#include <utility>

namespace gradledger::conform {
namespace {

constexpr std::array<std::pair<const char*, bool Capabilities::*>, 5> promises{{
    {"applied_gradients", &Capabilities::applied_gradients},
    {"accumulators", &Capabilities::accumulators},
    {"wide", &Capabilities::wide},
    {"one_pass", &Capabilities::one_pass},
    {"few_runs", &Capabilities::few_runs},
}};

}  // namespace

nlohmann::ordered_json json_of(const Capabilities& capabilities) {
  nlohmann::ordered_json out = nlohmann::ordered_json::object();
  for (const auto& [name, promise] : promises) out[name] = capabilities.*promise;
  return out;
}

Capabilities capabilities_of(const Field& field) {
  Capabilities out;
  for (const auto& [key, value] : field.members()) {
    bool known = false;
    for (const auto& [name, promise] : promises)
      if (key == name) {
        out.*promise = value.flag();
        known = true;
      }
    if (!known) value.fail("is not known here; expected what this version of gradledger has");
  }
  return out;
}

}  // namespace gradledger::conform
