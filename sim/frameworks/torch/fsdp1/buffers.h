// What the buffers of FullyShardedDataParallel are for.
#pragma once

#include <vector>

#include "sim/engine/buffers.h"

namespace gradledger::torch::flat_sharded {

const std::vector<BufferFamily>& fsdp1_buffer_families();

}  // namespace gradledger::torch::flat_sharded
