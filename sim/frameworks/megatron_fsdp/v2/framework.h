// The second version of Megatron-FSDP as a framework: megatron_fsdp.experimental, as its package has it.
#pragma once

#include "sim/frameworks/framework.h"

namespace gradledger::megatron_fsdp {

const Framework* second_version();

}  // namespace gradledger::megatron_fsdp
