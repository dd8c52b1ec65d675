// ZeRO stage 0: replicated weights, gradients accumulated by autograd in param.grad. In fp32 the base optimizer steps on them directly;
// in fp16 and bf16 FP16_Optimizer / FP16_UnfusedOptimizer keep fp32 master weights.
#pragma once

#include <vector>

#include "sim/engine/base_optimizer.h"
#include "sim/frameworks/deepspeed/engine/scaled_optimizer.h"

namespace gradledger {

class DataParallel final : public ScaledOptimizer {
 public:
  explicit DataParallel(const DeepSpeedContext& context);

  std::unique_ptr<Engine> clone() const override { return std::make_unique<DataParallel>(*this); }
  void initialise(ProgramWriter& w) override;  // fused_optimizer.py, unfused_optimizer.py: __init__, at 0.19.7
  void load(const Engine& saved) override;
  bool restores(BufferPurpose purpose) const override;
  void fold(StateFold& f) const override;

 protected:
  void reduce_gradients(ProgramWriter& w) override;  // engine.py: allreduce_gradients, _get_gradients_for_reduction, at 0.19.7
  void model_step(ProgramWriter& w) override;        // fused_optimizer.py, unfused_optimizer.py: step, at 0.19.7
  bool skips_on(bool overflow) const override;
  // FP16_Optimizer lets go of them itself, whatever the engine does.
  bool zero_grad_after_step() const override { return (wrapped_ && fused_) || DeepSpeedEngine::zero_grad_after_step(); }  // fused_optimizer.py: step, at 0.18.2
  bool in_norm(std::uint32_t parameter) const;                                                                            // utils.py: get_weight_norm, at 0.19.8
  void emit_norm(ProgramWriter& w) override;  // utils.py: get_flattened_grad_norm, get_weight_norm, at 0.19.7
  double reported_norm_factor() const override;
  void skip_step(ProgramWriter& w) override { step_done(w, false); }        // fused_optimizer.py, unfused_optimizer.py: step, at 0.19.7
  void finish_step(ProgramWriter& w, std::optional<double> norm) override;  // fused_optimizer.py, unfused_optimizer.py: step, at 0.19.7
  void observe_wrapper(ProgramWriter& w) override;                          // ours: snapshots

  double loss_scale() const override;
  bool is_zero_optimizer() const override { return false; }
  bool hooks_count() const override { return false; }
  bool multiplies_loss() const override { return false; }
  bool needs_scaler() const override { return false; }
  Role gradient_role() const override { return Role::replicated_accumulator; }

 private:
  void emit_norm_of(ProgramWriter& w, const std::vector<Slice>& slices, Slice norm, bool across_stages);  // utils.py: get_weight_norm, at 0.19.7
  void emit_norm_of_groups(ProgramWriter& w);                                                             // unfused_optimizer.py: step, at 0.19.7
  void emit_norm_of_norms(ProgramWriter& w);                                                              // utils.py: clip_grad_norm_, at 0.19.7
  void step_with_zeros(ProgramWriter& w);  // fused_optimizer.py, unfused_optimizer.py: initialize_optimizer_states, at 0.19.7
  void take_norm_mask();                   // fused_optimizer.py: _get_norm_mask_idx, at 0.17.0
  void require_timers() const;
  void require_gradient_to_clip() const;
  bool restores_state() const { return !wrapped_ || !config().bf16.enabled || behaviour().bf16_st0_checkpoint == Bf16Stage0Checkpoint::whole; }
  void step_plain(ProgramWriter& w, std::optional<double> norm);                              // engine.py: clip_fp32_gradients, _take_model_step, at 0.19.7
  void step_master(ProgramWriter& w, std::optional<double> norm);                             // fused_optimizer.py, unfused_optimizer.py: step, unscale_and_clip_grads, at 0.19.7
  std::vector<std::uint32_t> count_steps();                                                   // fused_adam.py: step, at 0.19.8
  void observe_weights(ProgramWriter& w, bool applied, const std::vector<Slice>& gradients);  // ours: snapshots
  static std::vector<ViewPiece> pieces(const std::vector<std::uint32_t>& parameters, const std::vector<Slice>& slices);

  const bool wrapped_;  // fp16 or bf16
  const bool fused_;    // FP16_Optimizer, else FP16_UnfusedOptimizer
  std::vector<RankGroup> groups_;
  std::vector<BaseOptimizer> optimizers_;  // by group
  std::vector<std::uint32_t> group_of_;    // by parameter
  std::vector<std::uint32_t> steps_;       // by parameter, without a wrapper
  std::vector<bool> masked_;               // by parameter: left out of the norm, from the first step on; empty before
  std::vector<Slice> weights_;             // model dtype, by parameter
  std::vector<Slice> master_;              // fp32, by parameter; the weights themselves when not wrapped
  std::vector<std::uint64_t> offsets_;     // by parameter, in its group
  Slice norm_squared_, overflow_flag_, norm_share_, parameter_norms_;
};

}  // namespace gradledger
