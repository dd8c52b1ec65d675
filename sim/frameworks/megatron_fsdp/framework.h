// Megatron-FSDP as a framework: megatron_fsdp.fully_shard, as its package has it.
#pragma once

#include "sim/frameworks/framework.h"

namespace gradledger::megatron_fsdp {

const Framework* framework();

}  // namespace gradledger::megatron_fsdp
