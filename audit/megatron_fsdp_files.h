// Megatron-LM's arguments that ask for Megatron-FSDP.
#pragma once

#include <string>

#include "audit/people_files.h"

namespace gradledger::audit {

bool asks_for_megatron_fsdp(const nlohmann::json& arguments);

// What a release of Megatron-LM takes where the arguments leave it open: megatron/training/arguments.py, at core_v0.14.0 to core_v0.19.0.
void take_megatron_fsdp(const loops::Releases& releases, Given& out);

// The release of megatron-fsdp whose code a release of Megatron-Core has: megatron/core/distributed/fsdp/src/megatron_fsdp/package_info.py, at core_v0.14.0 to
// core_v0.19.0. Empty: it has none.
std::string megatron_fsdp_in(const std::string& megatron_core);

}  // namespace gradledger::audit
