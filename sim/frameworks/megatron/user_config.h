// Arguments of Megatron-LM as its users have them, by the names that its parser gives them: "overlap_grad_reduce".
#pragma once

#include "sim/frameworks/user_config.h"

namespace gradledger::megatron {

const UserConfigReader& megatron_user_config_reader();

}  // namespace gradledger::megatron
