// Arguments of megatron_fsdp.fully_shard as their users keep them.
#pragma once

#include "sim/frameworks/user_config.h"

namespace gradledger::megatron_fsdp {

const UserConfigReader& user_config_reader();

// A MixedPrecisionPolicy as scenarios write it: "torch.bfloat16", "bfloat16" and "bf16" are one dtype; null is none of its own. Precondition: an object.
nlohmann::json policy_as_scenarios_write_it(const nlohmann::json& policy);

}  // namespace gradledger::megatron_fsdp
