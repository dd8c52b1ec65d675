// What PyTorch calls dtypes in its errors, and what its optimizers say of a gradient whose dtype is not the weight's.
#pragma once

#include <string>

#include "sim/engine/engine.h"
#include "sim/numeric/dtype.h"

namespace gradledger::torch {

inline const char* scalar_type(Dtype d) { return d == Dtype::float32 ? "Float" : d == Dtype::bfloat16 ? "BFloat16" : "Half"; }

// exp_avg.lerp_(grad, ...) of a weight in fp32. adam.py: _single_tensor_adam, at torch 2.13
inline FrameworkError moments_of_another_dtype(Dtype gradient) {
  return {"RuntimeError", std::string("expected dtype float for `end` but got dtype c10::") + scalar_type(gradient)};
}

}  // namespace gradledger::torch
