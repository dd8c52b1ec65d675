// DeepSpeed's families of buffers.
#pragma once

#include <span>

#include "sim/engine/buffers.h"

namespace gradledger::deepspeed {

std::span<const BufferFamily> buffer_families();

}  // namespace gradledger::deepspeed
