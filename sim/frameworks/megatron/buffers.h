// The buffers that Megatron-Core allocates, by family.
#pragma once

#include <vector>

#include "sim/engine/buffers.h"

namespace gradledger::megatron {

const std::vector<BufferFamily>& megatron_buffer_families();

}  // namespace gradledger::megatron
