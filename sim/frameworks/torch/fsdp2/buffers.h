// What the buffers of fully_shard are for.
#pragma once

#include <vector>

#include "sim/engine/buffers.h"

namespace gradledger::torch::fully_shard {

const std::vector<BufferFamily>& fsdp2_buffer_families();

}  // namespace gradledger::torch::fully_shard
