// Arguments of FullyShardedDataParallel as people have them: fsdp_config of accelerate or of a Trainer, with or without "fsdp_" before each key, the
// wrapper's own, or a scenario's.
#pragma once

#include "sim/frameworks/user_config.h"

namespace gradledger::torch {

const UserConfigReader& fsdp1_user_config_reader();

}  // namespace gradledger::torch
