// Holds a recorded run of DistributedDataParallel or fully_shard against its replay.
#pragma once

#include "conformance/compare.h"
#include "conformance/torch/run.h"

namespace gradledger::conform::torch {

// Every snapshot, collective, transfer, weight, norm, loss scale and error, bit for bit. Errors: an operation is malformed.
Result<Comparison> judge(const Run& run);

}  // namespace gradledger::conform::torch
