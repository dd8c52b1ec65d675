// Arguments of Megatron-LM that ask for Megatron-FSDP, by the names that its parser gives them.
#pragma once

#include "sim/frameworks/user_config.h"

namespace gradledger::megatron_fsdp {

// megatron/training/training.py, get_megatron_ddp_config, and megatron/core/distributed/fsdp/mcore_fsdp_adapter.py, at core_v0.19.0.
UserConfig read_megatron_lm(const nlohmann::json& arguments, const UserConfigHints& hints);

}  // namespace gradledger::megatron_fsdp
