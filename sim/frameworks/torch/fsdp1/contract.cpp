#include "sim/frameworks/torch/fsdp1/contract.h"

#include "sim/frameworks/torch/fsdp1/layout.h"
#include "sim/frameworks/loop_contract.h"
#include "sim/frameworks/torch/scaler_contract.h"

namespace gradledger::torch::flat_sharded {

// Without shards a gradient is whole on every rank, and what is reduced stands where own sums stood, as with DistributedDataParallel.
Contract fsdp1_contract(const Scenario& s, const Fsdp1Config& config) {
  Contract out = loop_contract(s);
  const bool whole = strategy_of(s, config) == Strategy::no_shard;
  out.replicates_reduced = whole;
  out.mixes_own_and_averaged = whole;
  out.steps_own_copies = whole;
  // PyTorch's defaults: parameters as they are, and gradients made and reduced as parameters compute.
  // Sums are due in the wider of the two, unless the loop keeps gradients as they were made.
  const MixedPrecision& precision = config.mixed_precision;
  const Dtype made = precision.param_dtype.value_or(s.model_dtype);
  out.computed = precision.param_dtype;
  out.wire = precision.reduce_dtype.value_or(made);
  out.accumulation = !precision.keep_low_precision_grads && size_of(out.wire) > size_of(made) ? out.wire : made;
  // No gradient is wider than its parameter.
  if (size_of(s.model_dtype) < size_of(out.accumulation)) out.accumulation = s.model_dtype;
  add_scaler(config.grad_scaler, out);
  return out;
}

}  // namespace gradledger::torch::flat_sharded
