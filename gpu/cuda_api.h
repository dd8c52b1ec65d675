// A GPU as the ranks use it.
#pragma once

#include <chrono>
#include <memory>

#include "gpu/device_api.h"
#include "sim/base/result.h"

namespace gradledger::gpu {

// How many GPUs there are that can run the kernels; the error says why none.
Result<int> count_devices();

// GPU number rank mod count_devices(), so that with several GPUs each rank has one of its own. Nothing is waited for longer than the deadline:
// a kernel that does not end is an error, and after it nothing is waited for any more.
std::unique_ptr<DeviceApi> make_cuda_api(std::uint32_t rank, std::chrono::milliseconds deadline);

}  // namespace gradledger::gpu
