// Arguments of Megatron-LM that ask for Megatron-FSDP, by the names that its parser gives them.
#pragma once

#include "sim/frameworks/user_config.h"

namespace gradledger::audit {

// As Megatron-FSDP's own reader gives them: megatron/training/training.py, get_megatron_ddp_config, and megatron/core/distributed/fsdp/mcore_fsdp_adapter.py, at core_v0.19.0.
UserConfig megatron_fsdp_options(const nlohmann::json& arguments, const UserConfigHints& hints);

}  // namespace gradledger::audit
