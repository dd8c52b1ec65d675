// Lists on the device: all_grad_tensors adds up what each epilogue reduced, averaged_gradients is what the step takes of it. Releases
// differ in which list is tested for emptiness, and which is added to.
#pragma once

#include <optional>
#include <vector>

#include "sim/frameworks/deepspeed/engine/keeping/kept_on_device.h"
#include "sim/frameworks/deepspeed/engine/keeping/muon_momentum.h"

namespace gradledger {

class DeviceLists final : public KeptOnDevice {
 public:
  DeviceLists(const FlatGroups& weights, bool muon) : averaged_(weights) {
    if (muon) muon_.emplace(weights);
  }

  void keep(ProgramWriter& w, const KeepingContext& c, std::uint32_t parameter) override;  // stage_1_and_2.py: copy_grads_in_partition, at 0.19.7
  void end_of_reductions(ProgramWriter& w, const KeepingContext& c) override;              // stage_1_and_2.py: independent_gradient_partition_epilogue, at 0.19.7
  // stage_1_and_2.py: independent_gradient_partition_epilogue, at 0.19.7
  void buckets_released(ProgramWriter& w, const KeepingContext& c) override { c.tensors.clear(w, grads_in_partition_); }
  void finalise(ProgramWriter& w, const KeepingContext& c) override;  // stage_1_and_2.py: finalize_gradient_accumulation_boundary, at 0.19.7
  void require(const KeepingContext& c) const override;
  Slice step_gradient(ProgramWriter& w, const KeepingContext& c, std::size_t group, Tensor& flat) override;  // stage_1_and_2.py: step, at 0.19.7
  void begin_step(ProgramWriter& w, const KeepingContext& c) override;                                       // stage_1_and_2.py: step, at 0.19.8
  bool observe_applied(ProgramWriter& w, const KeepingContext& c, std::size_t group) const override;         // ours: snapshots
  void observe_state(ProgramWriter& w, const KeepingContext& c) const override;                              // ours: snapshots
  void drop(ProgramWriter& w, const KeepingContext& c, bool skipped) override;                               // stage_1_and_2.py: step, at 0.19.7
  void observe(ProgramWriter& w, const KeepingContext& c, double scale) const override;                      // ours: snapshots
  void initialise(ProgramWriter& w, const KeepingContext& c) override;                                       // ours: what a checkpoint brings back has to be there
  void load(const KeptGradients& saved) override;                                                            // stage_1_and_2.py: load_state_dict, at 0.19.8
  void fold(StateFold& f) const override;

 private:
  const AveragedGradients& averaged() const override { return averaged_; }
  // Of each owned part the gradient of this epilogue. The caller holds them.
  static std::vector<Tensor> fresh_gradients(ProgramWriter& w, const KeepingContext& c);         // stage_1_and_2.py: get_all_grad_tensors, at 0.19.7
  void add_to_averaged(ProgramWriter& w, const KeepingContext& c, std::vector<Tensor> fresh);    // stage_1_and_2.py: independent_gradient_partition_epilogue, before DeepSpeed#7509
  void add_to_all(ProgramWriter& w, const KeepingContext& c, const std::vector<Tensor>& fresh);  // stage_1_and_2.py: independent_gradient_partition_epilogue, at 0.19.7
  void take_averaged_gradients(ProgramWriter& w, const KeepingContext& c);                       // stage_1_and_2.py: get_flat_partition, at 0.19.7

  AveragedGradients averaged_;
  Tensor grads_in_partition_;  // full gradients of owned parameters, this epilogue's
  std::uint64_t grads_in_partition_offset_ = 0;
  std::optional<std::vector<Tensor>> all_grad_tensors_;  // by owned part of all groups
  std::optional<MuonMomentum> muon_;
  bool all_grad_tensors_known_ = false;  // the list was filled once
};

}  // namespace gradledger
