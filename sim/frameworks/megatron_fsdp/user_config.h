// Arguments of megatron_fsdp.fully_shard as their users keep them.
#pragma once

#include "sim/frameworks/user_config.h"

namespace gradledger::megatron_fsdp {

const UserConfigReader& user_config_reader();

}  // namespace gradledger::megatron_fsdp
