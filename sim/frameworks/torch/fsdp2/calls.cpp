#include "sim/frameworks/torch/fsdp2/calls.h"

#include <algorithm>
#include <array>
#include <limits>
#include <vector>

#include <nlohmann/json.hpp>

#include "sim/base/limits.h"
#include "sim/scenario/json_reader.h"
#include "sim/scenario/spelling.h"

namespace gradledger::torch::fully_shard {
namespace {

using nlohmann::json;

// By the numbers of Method.
constexpr std::array<FrameworkEvent, 14> events{{
    {"set_requires_gradient_sync", "whether the backwards behind it reduce gradients at all"},
    {"set_requires_all_reduce", "whether they are reduced between replicas too, where the mesh has some"},
    {"set_is_last_backward", "whether the host's stream waits at the end of a backward for the reductions of it"},
    {"set_reshard_after_forward", "whether parameters are given up behind a forward"},
    {"set_reshard_after_backward", "whether parameters are given up behind a backward"},
    {"set_reduce_scatter_unused_params", "whether a parameter without gradient is reduced as zeros"},
    {"set_force_sum_reduction_for_comms", "whether collectives add up, and division is left to kernels"},
    {"set_gradient_divide_factor", "what gradients are divided by, instead of the number of ranks"},
    {"set_manual_backward_finalization", "whether the loop ends backwards itself, by finalize_backward"},
    {"unshard", "gathers the parameters of one module"},
    {"reshard", "gives up the gathered parameters of one module"},
    {"reset_iter_state", "forgets what a forward or backward that raised has left"},
    {"finalize_backward", "reduces what backwards left to it, and waits for all reductions unless async_op says otherwise", true, true},
    {"wait_for_gradient_reduction", "wait() of what finalize_backward with async_op returned last"},
}};

// The factor is one of fp32 where a collective or a kernel takes it.
bool divides(const json& value) {
  if (!value.is_number()) return false;
  const double x = value.get<double>();
  return x >= std::numeric_limits<float>::min() && x <= std::numeric_limits<float>::max();
}

bool takes_number(Method method) { return method == Method::set_gradient_divide_factor; }

}  // namespace

std::span<const FrameworkEvent> call_events() { return events; }

Method method_named(std::string_view name) {
  const auto at = std::find_if(events.begin(), events.end(), [&](const FrameworkEvent& event) { return event.name == name; });
  return static_cast<Method>(at - events.begin());
}

bool is_setter(Method method) { return method < Method::unshard; }

bool recurses(Method method) {
  return is_setter(method) && method != Method::set_is_last_backward && method != Method::set_force_sum_reduction_for_comms && method != Method::set_gradient_divide_factor &&
         method != Method::set_manual_backward_finalization;
}

bool of_a_part(const Call& call) { return call.unit || !call.recurse; }

std::optional<ReductionSwitch> switches_reductions(const Call& call) {
  if (of_a_part(call)) return std::nullopt;
  if (call.method == Method::set_requires_gradient_sync) return ReductionSwitch{own_sums | partial_sums, !call.flag()};
  if (call.method == Method::set_requires_all_reduce) return ReductionSwitch{partial_sums, !call.flag()};
  return std::nullopt;
}

Result<Call> call_from_json(Method method, const json& arguments, const std::string& where) {
  Call out;
  out.method = method;
  out.recurse = recurses(method);
  std::vector<std::string> keys;
  if (method != Method::wait_for_gradient_reduction) keys.emplace_back("unit");
  if (is_setter(method)) keys.emplace_back("value");
  if (recurses(method)) keys.emplace_back("recurse");
  if (method == Method::finalize_backward) keys.emplace_back("async_op");
  for (const auto& [key, value] : arguments.items()) {
    const std::string here = where + "/" + pointer_token(key);
    if (std::find(keys.begin(), keys.end(), key) == keys.end())
      return InputError{here, "is no argument of " + std::string(events[static_cast<std::size_t>(method)].name) + "; expected " + in_words(keys) + suggestion(key, keys)};
    if (key == "unit" && (!value.is_number_unsigned() || value.get<std::uint64_t>() >= limits::parameters_max))
      return InputError{here, "is " + value.dump() + "; expected the number of a unit, from 0 to " + std::to_string(limits::parameters_max - 1) + ", or nothing for the root"};
    if ((key == "recurse" || key == "async_op") && !value.is_boolean()) return InputError{here, "is " + value.dump() + "; expected true or false"};
    if (key == "value" && takes_number(method) && !divides(value)) return InputError{here, "is " + value.dump() + "; expected a number above 0 that fp32 can hold"};
    if (key == "value" && !takes_number(method) && !value.is_boolean()) return InputError{here, "is " + value.dump() + "; expected true or false"};
  }
  if (is_setter(method) && !arguments.contains("value")) return InputError{where + "/value", "is missing; expected what is set"};
  if (is_setter(method)) out.value = takes_number(method) ? arguments["value"].get<double>() : arguments["value"].get<bool>();
  if (method == Method::finalize_backward) out.value = arguments.value("async_op", false);
  if (arguments.contains("unit")) out.unit = arguments["unit"].get<std::uint32_t>();
  out.recurse = arguments.value("recurse", out.recurse);
  return out;
}

std::string Call::json_text() const {
  json out = json::object();
  if (is_setter(method) && takes_number(method)) out["value"] = value;
  if (is_setter(method) && !takes_number(method)) out["value"] = flag();
  if (method == Method::finalize_backward && flag()) out["async_op"] = true;
  if (unit) out["unit"] = *unit;
  if (recurses(method) && !recurse) out["recurse"] = false;
  return out.dump();
}

}  // namespace gradledger::torch::fully_shard
