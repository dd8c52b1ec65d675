// The second version's configuration as its users have it: arguments of experimental.fully_shard.
#pragma once

#include "sim/frameworks/user_config.h"

namespace gradledger::megatron_fsdp::v2 {

const UserConfigReader& user_config_reader();

}  // namespace gradledger::megatron_fsdp::v2
