#include "sim/frameworks/megatron_fsdp/v2/contract.h"

#include "sim/frameworks/loop_contract.h"

namespace gradledger::megatron_fsdp::v2 {

// The loss is the loop's. Gradients are averaged over all ranks.
Contract v2_contract(const Scenario& s, const V2Config& config) {
  Contract out = loop_contract(s);
  out.replicates_reduced = false;
  out.mixes_own_and_averaged = false;
  out.steps_own_copies = false;
  out.computed = s.model_dtype;
  out.accumulation = config.mixed_precision.main_grads_dtype.value_or(s.model_dtype);
  out.wire = config.mixed_precision.grad_comm_dtype.value_or(out.accumulation);
  out.steps_in_model_dtype = false;
  return out;
}

}  // namespace gradledger::megatron_fsdp::v2
