// ZeRO stage 0: replicated weights, gradients accumulated by autograd in param.grad. In fp32 the base optimizer steps on them directly;
// in fp16 and bf16 FP16_Optimizer / FP16_UnfusedOptimizer keep fp32 master weights.
#pragma once

#include <vector>

#include "sim/engine/base_optimizer.h"
#include "sim/frameworks/deepspeed/engine/deepspeed_engine.h"
#include "sim/frameworks/deepspeed/engine/loss_scaler.h"

namespace gradledger {

class DataParallel final : public DeepSpeedEngine {
 public:
  explicit DataParallel(const DeepSpeedContext& context);

  std::unique_ptr<Engine> clone() const override { return std::make_unique<DataParallel>(*this); }
  void initialise(ProgramWriter& w) override;
  void load(const Engine& saved) override;
  void fold(StateFold& f) const override;

 protected:
  void reduce_gradients(ProgramWriter& w) override;
  void model_step(ProgramWriter& w) override;
  void on_value(std::uint32_t stage, double value, ProgramWriter& w) override;
  void observe_wrapper(ProgramWriter& w) override;

  double loss_scale() const override;
  bool is_zero_optimizer() const override { return false; }
  bool hooks_count() const override { return false; }
  bool multiplies_loss() const override { return false; }
  bool needs_scaler() const override { return false; }
  Role gradient_role() const override { return Role::replicated_accumulator; }

 private:
  enum Stage : std::uint32_t { overflow_known, norm_known };

  void emit_norm(ProgramWriter& w);
  void emit_norm_of(ProgramWriter& w, const std::vector<Slice>& slices, Slice norm, bool across_stages);
  void emit_norm_of_norms(ProgramWriter& w);
  double reported_norm_factor() const;
  double unscaled_by() const;
  void step_plain(ProgramWriter& w, std::optional<double> norm);
  void step_master(ProgramWriter& w, std::optional<double> norm);
  void observe_weights(ProgramWriter& w, bool applied, const std::vector<Slice>& gradients);
  static std::vector<ViewPiece> pieces(const std::vector<std::uint32_t>& parameters, const std::vector<Slice>& slices);

  const bool wrapped_;        // fp16 or bf16
  const bool fused_;          // FP16_Optimizer, else FP16_UnfusedOptimizer
  LossScaler scaler_;         // what the step divides by
  double scale_before_update_ = 1.0;
  std::vector<RankGroup> groups_;
  std::vector<BaseOptimizer> optimizers_;  // by group
  std::vector<std::uint32_t> group_of_;    // by parameter
  std::vector<Slice> weights_;  // model dtype, by parameter
  std::vector<Slice> master_;   // fp32, by parameter; the weights themselves when not wrapped
  std::vector<std::uint32_t> offsets_;  // by parameter, in its group
  Slice norm_squared_, norm_, overflow_flag_, norm_share_, parameter_norms_;
};

}  // namespace gradledger
