// AutoTP of a user's configuration: how ranks lie, and which parameters DeepSpeed cuts.
#pragma once

#include "sim/frameworks/user_config.h"

namespace gradledger::deepspeed {

// Adds the layout and the parameters of a configuration that asks for it, or why there are none. The configuration keeps its key where there is a layout.
void cut_by_autotp(nlohmann::json& given, const UserConfigHints& hints, UserConfig& out);

}  // namespace gradledger::deepspeed
