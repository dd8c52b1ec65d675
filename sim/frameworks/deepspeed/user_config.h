// ds_config.json as people have it.
#pragma once

#include "sim/frameworks/user_config.h"

namespace gradledger::deepspeed {

const UserConfigReader& user_config_reader();

}  // namespace gradledger::deepspeed
