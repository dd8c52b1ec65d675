// Accumulators on the host, a full gradient each (accumulated_grads_in_cpu): what a boundary adds up with them goes to the master gradient.
#pragma once

#include <vector>

#include "sim/frameworks/deepspeed/engine/keeping/kept_on_host.h"

namespace gradledger {

class HostAccumulators final : public KeptOnHost {
 public:
  explicit HostAccumulators(std::size_t parameters) : KeptOnHost(parameters), accumulated_on_host_(parameters) {}

  void keep(ProgramWriter& w, const KeepingContext& c, std::uint32_t parameter) override;  // stage_1_and_2.py: copy_grads_in_partition, at 0.19.7
  void keep_empty(const KeepingContext& c, std::uint32_t parameter) const override;        // stage_1_and_2.py: copy_grads_in_partition, at 0.19.5
  void drop(ProgramWriter& w, const KeepingContext& c, bool skipped) override;             // stage_1_and_2.py: step, at 0.19.7
  void observe(ProgramWriter& w, const KeepingContext& c, double scale) const override;    // ours: snapshots
  void fold(StateFold& f) const override;

 private:
  void accumulate_on_host(ProgramWriter& w, const KeepingContext& c, std::uint32_t parameter);           // stage_1_and_2.py: async_accumulate_grad_in_cpu_via_gpu, at 0.19.7
  void finalise_parameter(ProgramWriter& w, const KeepingContext& c, std::uint32_t parameter) override;  // stage_1_and_2.py: finalize_gradient_accumulation_boundary, at 0.19.7

  std::vector<Tensor> accumulated_on_host_;  // accumulated_grads_in_cpu, by parameter
};

}  // namespace gradledger
