// The buffers that DistributedDataParallel, its optimizer and its loop allocate, by family.
#pragma once

#include <vector>

#include "sim/engine/buffers.h"

namespace gradledger::torch {

const std::vector<BufferFamily>& ddp_buffer_families();

}  // namespace gradledger::torch
