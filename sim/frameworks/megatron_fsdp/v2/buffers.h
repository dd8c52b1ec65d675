// The names of the second version's buffers.
#pragma once

#include <vector>

#include "sim/engine/buffers.h"

namespace gradledger::megatron_fsdp::v2 {

const std::vector<BufferFamily>& v2_buffer_families();

}  // namespace gradledger::megatron_fsdp::v2
