#include "sim/frameworks/torch/ddp/calls.h"

#include <algorithm>
#include <array>
#include <vector>

#include <nlohmann/json.hpp>

#include "sim/scenario/json_reader.h"
#include "sim/scenario/spelling.h"

namespace gradledger::torch::data_parallel {
namespace {

using nlohmann::json;

constexpr std::array<FrameworkEvent, 2> events{{
    {"require_manual_backward_finalization", "whether the loop ends backwards itself, by finalize_backward"},
    {"finalize_backward", "waits for the reductions of a backward, and writes averages into param.grad", true},
}};

}  // namespace

std::span<const FrameworkEvent> call_events() { return events; }

Method method_named(std::string_view name) {
  const auto at = std::find_if(events.begin(), events.end(), [&](const FrameworkEvent& event) { return event.name == name; });
  return static_cast<Method>(at - events.begin());
}

Result<Call> call_from_json(Method method, const json& arguments, const std::string& where) {
  const bool sets = method == Method::require_manual_backward_finalization;
  const std::vector<std::string> keys = sets ? std::vector<std::string>{"value"} : std::vector<std::string>{};
  for (const auto& [key, value] : arguments.items()) {
    const std::string here = where + "/" + pointer_token(key);
    if (std::find(keys.begin(), keys.end(), key) == keys.end())
      return InputError{here, "is no argument of " + std::string(events[static_cast<std::size_t>(method)].name) + "; expected " + in_words(keys) + suggestion(key, keys)};
    if (!value.is_boolean()) return InputError{here, "is " + value.dump() + "; expected true or false"};
  }
  if (sets && !arguments.contains("value")) return InputError{where + "/value", "is missing; expected what is set"};
  return Call{method, sets && arguments["value"].get<bool>()};
}

std::optional<ReductionSwitch> switches_reductions(const Call& call) {
  if (call.method != Method::require_manual_backward_finalization) return std::nullopt;
  return ReductionSwitch{own_sums | partial_sums, call.value};
}

std::string Call::json_text() const { return method == Method::finalize_backward ? "{}" : json{{"value", value}}.dump(); }

}  // namespace gradledger::torch::data_parallel
