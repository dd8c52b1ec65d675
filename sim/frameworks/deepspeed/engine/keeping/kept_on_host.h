// The master gradient, which the step takes wherever the optimizer is on the host.
#pragma once

#include "sim/frameworks/deepspeed/engine/keeping/kept_gradients.h"

namespace gradledger {

class KeptOnHost : public KeptGradients {
 public:
  void initialise(ProgramWriter& w, const KeepingContext& c) override;  // stage_1_and_2.py: __init__, at 0.19.7
  void finalise(ProgramWriter& w, const KeepingContext& c) override;    // stage_1_and_2.py: finalize_gradient_accumulation_boundary, at 0.19.7
  // stage_1_and_2.py: complete_grad_norm_calculation_for_cpu_offload, at 0.19.7
  void add_squares(ProgramWriter& w, const KeepingContext& c, std::size_t group, Slice squared) const override;
  Slice step_gradient(ProgramWriter& w, const KeepingContext& c, std::size_t group, Tensor& flat) override;  // stage_1_and_2.py: step, at 0.19.7
  Stream step_stream() const override { return Stream::host; }
  void drop(ProgramWriter& w, const KeepingContext& c, bool skipped) override;  // stage_1_and_2.py: step, at 0.19.7
  Slice user_gradient(const KeepingContext& c, std::size_t group, std::size_t place) const override;
  // tensor_fragment.py: set_full_hp_grad, at 0.19.7
  void user_has_set(ProgramWriter& w, const KeepingContext& c, std::uint32_t parameter, Slice full, Slice own, bool refreshes_norm) const override;
  void observe(ProgramWriter& w, const KeepingContext& c, double scale) const override;  // ours: snapshots
  void fold(StateFold& f) const override;

 protected:
  explicit KeptOnHost(std::size_t parameters) : holds_window_(parameters), norm_recorded_(parameters) {}

  // What was kept of a parameter goes to the master gradient. Precondition: holds_window_.
  virtual void finalise_parameter(ProgramWriter& w, const KeepingContext& c, std::uint32_t parameter) = 0;
  // `gradient` is looked at for an overflow, `own` is the rank's part of it.
  // stage_1_and_2.py: async_inplace_copy_grad_to_fp32_buffer_from_gpu, at 0.19.7
  void to_master_gradient(ProgramWriter& w, const KeepingContext& c, std::uint32_t parameter, Slice gradient, Slice own);

  std::vector<bool> holds_window_;  // this window stored into it, by parameter

 private:
  void record_norm(ProgramWriter& w, std::uint32_t parameter, Slice own) const;  // stage_1_and_2.py: set_norm_for_param_grad_in_gpu, at 0.19.7

  std::vector<bool> norm_recorded_;     // norm_for_param_grads, by parameter
  std::vector<Slice> master_gradient_;  // by group: single_partition_of_fp32_groups[g].grad
  Slice recorded_norms_;
};

}  // namespace gradledger
