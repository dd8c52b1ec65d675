#include "sim/frameworks/torch/ddp/contract.h"

#include "sim/frameworks/torch/loop_contract.h"

namespace gradledger::torch {
namespace {

Dtype wire(const Scenario& s, const DdpConfig& config) {
  switch (config.comm_hook) {
    case CommHook::fp16_compress:
    case CommHook::fp16_wrapper: return Dtype::float16;
    case CommHook::bf16_compress:
    case CommHook::bf16_wrapper: return Dtype::bfloat16;
    case CommHook::none:
    case CommHook::allreduce:
    case CommHook::noop: return s.model_dtype;
  }
  return s.model_dtype;
}

}  // namespace

Contract ddp_contract(const Scenario& s, const DdpConfig& config) {
  Contract out = loop_contract(s);
  out.wire = wire(s, config);
  add_scaler(config.grad_scaler, out);
  return out;
}

}  // namespace gradledger::torch
