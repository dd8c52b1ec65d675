#include "sim/frameworks/megatron/planned_buffers.h"

#include <algorithm>

namespace gradledger::megatron {
namespace {

bool in_part(const Setup& setup, std::uint32_t p, std::uint32_t chunk, bool of_experts) {
  const Parameter& it = setup.parameter(p);
  return setup.holds(p) && it.has_gradient() && it.expert.has_value() == of_experts && setup.chunk_of(p) == chunk;
}

PlannedBuffer planned(const Setup& setup, std::uint32_t chunk, bool of_experts, Dtype dtype) {
  const DdpOptions& ddp = setup.config->ddp;
  const ParallelGroups& parallel = setup.groups;
  PlannedBuffer out;
  out.chunk = chunk;
  out.of_experts = of_experts;
  out.dtype = dtype;
  out.group = of_experts ? parallel.expert_data : setup.instances() > 1 ? parallel.instance : parallel.data_context;
  for (std::uint32_t p = 0; p < setup.parameter_count(); ++p) {
    if (in_part(setup, p, chunk, of_experts) && setup.scenario().dtype_of(p) == dtype) out.laid.push_back({p, setup.parameter(p).numel, setup.attributes(p).shared_embedding});
  }
  out.rules = {ddp.use_distributed_optimizer, out.group.size(), std::nullopt, ddp.pad_buckets_for_high_nccl_busbw, setup.behaviour.keeps_bucket_start};
  // Buckets serve the overlap alone; a later pipeline stage has one, and a later chunk.
  if (ddp.overlap_grad_reduce && parallel.first_stage() && chunk == 0)
    out.rules.bucket_size = ddp.bucket_size.value_or(std::max<std::uint64_t>(40000000, 1000000ull * parallel.data_context.size()));
  return out;
}

}  // namespace

// Parameters are grouped by dtype, in the order in which the dtypes come; experts have buffers of their own, behind the others.
std::vector<PlannedBuffer> planned_buffers(const Setup& setup) {
  std::vector<PlannedBuffer> out;
  const std::uint32_t chunks = setup.config->schedule ? setup.config->schedule->chunks() : 1;
  for (std::uint32_t chunk = 0; chunk < chunks; ++chunk)
    for (const bool of_experts : {false, true}) {
      std::vector<Dtype> dtypes;
      for (std::uint32_t p = 0; p < setup.parameter_count(); ++p) {
        const Dtype dtype = setup.scenario().dtype_of(p);
        if (in_part(setup, p, chunk, of_experts) && std::find(dtypes.begin(), dtypes.end(), dtype) == dtypes.end()) dtypes.push_back(dtype);
      }
      for (const Dtype dtype : dtypes) out.push_back(planned(setup, chunk, of_experts, dtype));
    }
  return out;
}

}  // namespace gradledger::megatron
