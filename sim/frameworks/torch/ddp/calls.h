// What a loop sets and calls of DistributedDataParallel besides running it, as events of a script: {"event": {"name": "finalize_backward"}}.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "sim/base/result.h"
#include "sim/scenario/framework_config.h"

namespace gradledger::torch::data_parallel {

enum class Method : std::uint8_t { require_manual_backward_finalization, finalize_backward };

struct Call {
  Method method = Method::finalize_backward;
  bool value = false;  // of the attribute

  bool operator==(const Call&) const = default;
  std::string json_text() const;
};

std::span<const FrameworkEvent> call_events();                                                          // by the numbers of Method
Method method_named(std::string_view name);                                                             // precondition: call_events() has it
std::optional<ReductionSwitch> switches_reductions(const Call& call);                                   // nothing where it switches none
Result<Call> call_from_json(Method method, const nlohmann::json& arguments, const std::string& where);  // errors: keys and values that are not its own

}  // namespace gradledger::torch::data_parallel
