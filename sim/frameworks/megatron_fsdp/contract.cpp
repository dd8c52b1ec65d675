#include "sim/frameworks/megatron_fsdp/contract.h"

#include "sim/frameworks/loop_contract.h"

namespace gradledger::megatron_fsdp {

// The loss is the loop's. Gradients are averaged over all ranks, unless the loop divides by its tokens, for which they are added up.
Contract megatron_fsdp_contract(const Scenario& s, const MegatronFsdpConfig& config) {
  Contract out = loop_contract(s);
  out.replicates_reduced = config.zero_dp_strategy == Strategy::no_shard;
  out.mixes_own_and_averaged = false;
  out.steps_own_copies = false;
  if (config.calculate_per_token_loss) out.average_divisor = Rational(1);
  out.computed = s.model_dtype;
  out.accumulation = config.mixed_precision.main_grads_dtype.value_or(s.model_dtype);
  out.wire = config.mixed_precision.grad_comm_dtype.value_or(out.accumulation);
  out.steps_in_model_dtype = !config.mixed_precision.main_params_dtype;
  return out;
}

}  // namespace gradledger::megatron_fsdp
