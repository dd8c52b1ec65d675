// From a dtype known at run time to a type known at compile time.
#pragma once

#include "sim/base/contract.h"
#include "sim/numeric/dtype.h"
#include "sim/numeric/scalar.h"

namespace gradledger::numeric {

// body(T{}) for the stored form T of a gradient dtype; any other dtype breaks the contract. Inlined always, so that a body
// compiled for one instruction set stays in it.
template <class Body>
[[gnu::always_inline]] inline void with_dtype(Dtype dtype, Body&& body) {
  switch (dtype) {
    case Dtype::float32: return body(float{});
    case Dtype::bfloat16: return body(Bf16{});
    case Dtype::float16: return body(Fp16{});
    default: expects(false, "a kernel was asked for a dtype it does not have");
  }
}

}  // namespace gradledger::numeric
