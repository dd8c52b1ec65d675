// The names of Megatron-FSDP's buffers.
#pragma once

#include <vector>

#include "sim/engine/buffers.h"

namespace gradledger::megatron_fsdp {

const std::vector<BufferFamily>& megatron_fsdp_buffer_families();

}  // namespace gradledger::megatron_fsdp
