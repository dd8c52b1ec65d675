// Arguments of DistributedDataParallel as people have them: its own, or those that a Trainer hands on to it.
#pragma once

#include "sim/frameworks/user_config.h"

namespace gradledger::torch {

const UserConfigReader& ddp_user_config_reader();

}  // namespace gradledger::torch
