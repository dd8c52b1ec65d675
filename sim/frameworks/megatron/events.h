// The events that Megatron-Core alone has, by the names that scripts call them.
#pragma once

#include <array>
#include <string_view>

#include "sim/scenario/framework_config.h"

namespace gradledger::megatron {

inline constexpr std::string_view schedule_event = "forward_backward_func";
inline constexpr std::string_view finalize_event = "finalize_model_grads";
inline constexpr std::string_view start_grad_sync_event = "start_grad_sync";
inline constexpr std::string_view start_param_sync_event = "start_param_sync";

inline constexpr std::array own_events{
    FrameworkEvent{schedule_event, "Calls the schedule: the backwards behind it are those of its micro-batches, and it decides which of them synchronise.", false},
    FrameworkEvent{finalize_event, "Waits for the reduction of all gradients, or runs it; then reduces what other dimensions share, and divides by tokens.", true},
    FrameworkEvent{start_grad_sync_event, "Begins the reduction of every bucket, as a pipeline stage does behind its last backward.", false},
    FrameworkEvent{start_param_sync_event, "Gathers the weights of every bucket, whether or not the next forward would.", false},
};

}  // namespace gradledger::megatron
