#include "sim/frameworks/torch/fsdp2/contract.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "sim/frameworks/loop_contract.h"
#include "sim/frameworks/torch/fsdp2/calls.h"
#include "sim/frameworks/torch/scaler_contract.h"

namespace gradledger::torch::fully_shard {
namespace {

// Exact where the factor has a power of two below 65537 as its denominator.
Rational rational(double factor) {
  std::int64_t denominator = 1;
  while (denominator < 65536 && std::nearbyint(factor * static_cast<double>(denominator)) != factor * static_cast<double>(denominator)) denominator *= 2;
  return {static_cast<std::int64_t>(std::llround(factor * static_cast<double>(denominator))), denominator};
}

// Whether the loop has modules reduce on their own.
bool reduces_in_parts(const std::vector<ScriptItem>& items) {
  return std::any_of(items.begin(), items.end(), [](const ScriptItem& item) {
    if (item.kind != ScriptKind::of_framework) return reduces_in_parts(item.items);
    const Call& call = item.event.arguments.as<Call>();
    return (call.method == Method::set_requires_gradient_sync || call.method == Method::set_requires_all_reduce) && of_a_part(call);
  });
}

}  // namespace

Contract fsdp2_contract(const Scenario& s, const Fsdp2Config& config) {
  Contract out = loop_contract(s);
  out.boundary.inside_backwards = config.optimizer_in_backward;
  out.replicates_reduced = false;
  out.mixes_own_and_averaged = false;
  out.steps_own_copies = false;
  out.block_is_a_switch = true;
  out.reduces_in_parts = reduces_in_parts(s.script);
  // PyTorch's defaults: parameters as they are, and gradients reduced as parameters compute.
  lay_out(s, out);
  out.computed = config.mixed_precision.param_dtype;
  out.accumulation = config.mixed_precision.param_dtype.value_or(s.model_dtype);
  out.wire = config.mixed_precision.reduce_dtype.value_or(out.accumulation);
  // No gradient is wider than its parameter.
  if (size_of(s.model_dtype) < size_of(out.accumulation)) out.accumulation = s.model_dtype;
  // Tensor.grad_dtype: what a leaf's gradient is accumulated in.
  if (config.grad_dtype) out.accumulation = *config.grad_dtype;
  if (config.gradient_divide_factor) out.average_divisor = rational(*config.gradient_divide_factor);
  add_scaler(config.grad_scaler, out);
  return out;
}

}  // namespace gradledger::torch::fully_shard
