// Methods of an FSDPModule that a loop calls between its steps, as events of a script: {"event": {"name": "set_requires_gradient_sync", "value": false}}.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "sim/base/result.h"
#include "sim/scenario/framework_config.h"

namespace gradledger::torch::fully_shard {

enum class Method : std::uint8_t {
  set_requires_gradient_sync,
  set_requires_all_reduce,
  set_is_last_backward,
  set_reshard_after_forward,
  set_reshard_after_backward,
  set_reduce_scatter_unused_params,
  set_force_sum_reduction_for_comms,
  set_gradient_divide_factor,
  set_manual_backward_finalization,
  unshard,
  reshard,
  reset_iter_state,
  finalize_backward,
  wait_for_gradient_reduction,
};

struct Call {
  double value = 0;                   // of setters, and async_op of finalize_backward; 0 and 1 stand for False and True
  std::optional<std::uint32_t> unit;  // whose method it is; absent: the root's
  bool recurse = true;                // for the modules below it too

  bool operator==(const Call&) const = default;
  std::string json_text() const;

  bool flag() const { return value != 0; }
  Method method = Method::unshard;
};

std::span<const FrameworkEvent> call_events();
Method method_named(std::string_view name);                            // precondition: call_events() has it
bool is_setter(Method method);                                         // that takes a value
bool of_a_part(const Call& call);                                      // of one module, and not of the whole model
std::optional<ReductionSwitch> switches_reductions(const Call& call);  // of the whole model; nothing where it switches no reductions
bool recurses(Method method);                                          // and may be set for the modules below
Result<Call> call_from_json(Method method, const nlohmann::json& arguments, const std::string& where);

}  // namespace gradledger::torch::fully_shard
