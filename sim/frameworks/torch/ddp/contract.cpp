#include "sim/frameworks/torch/ddp/contract.h"

#include "sim/frameworks/torch/ddp/power_sgd.h"
#include "sim/frameworks/loop_contract.h"
#include "sim/frameworks/torch/scaler_contract.h"

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
    case CommHook::noop:
    case CommHook::sum:
    case CommHook::power_sgd: return s.model_dtype;
  }
  return s.model_dtype;
}

// PowerSGD: the first iterations are averages. From there on a compressed parameter has an approximation, to which error feedback adds in the next
// iteration what this one left out; the others have the average, of sums that error feedback keeps adding to.
Approximation approximation(const Scenario& s, const DdpConfig& config) {
  Approximation out;
  out.exact_reductions = config.power_sgd->start_powerSGD_iter;
  for (const Parameter& p : s.parameters) {
    out.weights.push_back(p.has_gradient() && low_rank_of(config, p).has_value());
    out.values.push_back(out.weights.back() || config.power_sgd->use_error_feedback);
  }
  return out;
}

}  // namespace

Contract ddp_contract(const Scenario& s, const DdpConfig& config) {
  Contract out = loop_contract(s);
  lay_out(s, out);
  out.boundary.inside_backwards = config.steps_inside_backwards();
  out.wire = wire(s, config);
  if (config.power_sgd) out.approximation = approximation(s, config);
  add_scaler(config.grad_scaler, out);
  return out;
}

}  // namespace gradledger::torch
