// Holds a recorded run of Megatron-Core against its replay.
#pragma once

#include "conformance/compare.h"
#include "conformance/megatron/run.h"

namespace gradledger::conform::megatron {

// Layout of the buffers, every snapshot, collective, count of the host, weight, norm, loss scale and error, bit for bit. Errors: an operation is
// malformed.
Result<Comparison> judge(const Run& run);

}  // namespace gradledger::conform::megatron
