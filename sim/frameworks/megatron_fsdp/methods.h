// Methods of MegatronFSDP that a loop calls between its steps, as events of a script.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "sim/base/result.h"
#include "sim/scenario/framework_config.h"

namespace gradledger::megatron_fsdp {

inline constexpr std::string_view auto_sync_event = "set_model_auto_sync";
inline constexpr std::string_view finish_event = "finish_grad_sync";

inline constexpr std::array own_events{
    FrameworkEvent{auto_sync_event, "Whether each backward behind it is reduced and its gradients are installed for the optimizer, outside of no_sync() or not.", false},
    FrameworkEvent{finish_event, "Waits for reductions that backwards began, and installs the gradients for the optimizer.", false},
};

// What an event is told.
struct Call {
  bool sync = true;  // set_model_auto_sync

  bool operator==(const Call&) const = default;
  std::string json_text() const;
};

Result<Call> call_from_json(std::string_view event, const nlohmann::json& arguments, const std::string& where);

}  // namespace gradledger::megatron_fsdp
