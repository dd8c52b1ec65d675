#include "sim/frameworks/megatron/planned_buffers.h"

#include <algorithm>

namespace gradledger::megatron {
namespace {

PlannedBuffer planned(const Setup& setup, bool of_experts, Dtype dtype) {
  const DdpOptions& ddp = setup.config->ddp;
  const ParallelGroups& parallel = setup.groups;
  PlannedBuffer out;
  out.of_experts = of_experts;
  out.dtype = dtype;
  out.group = of_experts ? parallel.expert_data : setup.instances() > 1 ? parallel.instance : parallel.data_context;
  for (std::uint32_t p = 0; p < setup.parameter_count(); ++p) {
    const Parameter& it = setup.parameter(p);
    if (setup.holds(p) && it.has_gradient() && it.expert.has_value() == of_experts && setup.scenario().dtype_of(p) == dtype)
      out.laid.push_back({p, it.numel, setup.attributes(p).shared_embedding});
  }
  out.rules = {ddp.use_distributed_optimizer, out.group.size(), std::nullopt, ddp.pad_buckets_for_high_nccl_busbw, setup.behaviour.keeps_bucket_start};
  // Buckets serve the overlap alone; a later pipeline stage has one.
  if (ddp.overlap_grad_reduce && parallel.first_stage())
    out.rules.bucket_size = ddp.bucket_size.value_or(std::max<std::uint64_t>(40000000, 1000000ull * parallel.data_context.size()));
  return out;
}

}  // namespace

// Parameters are grouped by dtype, in the order in which the dtypes come; experts have buffers of their own, behind the others.
std::vector<PlannedBuffer> planned_buffers(const Setup& setup) {
  std::vector<PlannedBuffer> out;
  for (const bool of_experts : {false, true}) {
    std::vector<Dtype> dtypes;
    for (std::uint32_t p = 0; p < setup.parameter_count(); ++p) {
      const Dtype dtype = setup.scenario().dtype_of(p);
      const bool here = setup.holds(p) && setup.parameter(p).has_gradient() && setup.parameter(p).expert.has_value() == of_experts;
      if (here && std::find(dtypes.begin(), dtypes.end(), dtype) == dtypes.end()) dtypes.push_back(dtype);
    }
    for (const Dtype dtype : dtypes) out.push_back(planned(setup, of_experts, dtype));
  }
  return out;
}

}  // namespace gradledger::megatron
