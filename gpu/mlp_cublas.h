// The forward and backward of a network on a GPU: cuBLAS for the products, kernels of ours for the rest, fp32 throughout.
#pragma once

#include <memory>

#include "sim/base/result.h"
#include "sim/trace/autograd.h"

namespace gradledger::gpu {

// Preconditions: the source has network data of the scenario's network; both outlive the autograd. Errors: no GPU, no cuBLAS. Where the
// device has too little memory, the call or a later run throws DeviceError.
Result<std::unique_ptr<Autograd>> cublas_autograd(const Scenario& scenario, const GradientSource& source);

}  // namespace gradledger::gpu
