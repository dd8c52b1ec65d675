// The wrappers with a loss scale, all but BF16_Optimizer: how a step decides from an overflow and a norm whether it updates.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>

#include "sim/engine/clipping.h"
#include "sim/frameworks/deepspeed/engine/deepspeed_engine.h"
#include "sim/frameworks/deepspeed/engine/loss_scaler.h"

namespace gradledger {

class ScaledOptimizer : public DeepSpeedEngine {
 protected:
  ScaledOptimizer(const DeepSpeedContext& context, const LossScaler& scaler) : DeepSpeedEngine(context), scaler_(scaler) {}

  // The values that a step waits for, in this order. model_step() ends in the first of them.
  enum Stage : std::uint32_t { overflow_known, norm_checked, norm_known };

  // fused_optimizer.py, unfused_optimizer.py, stage_1_and_2.py: step, at 0.19.7; stage3.py: _overflow_check_and_loss_scale_update,
  // step, at 0.19.7 and 0.19.8.
  void on_value(std::uint32_t stage, double value, ProgramWriter& w) final;

  // ---- what the wrapper fills in, in the order of a step
  virtual bool skips_on(bool overflow) const { return overflow; }
  virtual bool skips_invalid_norms() const { return behaviour().invalid_norm == InvalidNorm::skipped; }
  virtual void require_gradients() const {}                     // of a step that does not skip, before it asks for their norm
  virtual void emit_norm(ProgramWriter& w) = 0;                 // into norm_
  virtual bool refuses_invalid_norms() const { return false; }  // it raises then
  virtual Slice awaited_norm() const { return norm_; }
  virtual double norm_of(double awaited) const { return awaited; }
  virtual double reported_norm_factor() const { return 1.0 / unscaled_by(); }
  virtual void skip_step(ProgramWriter& w) = 0;                                // ends in step_done(w, false)
  virtual void finish_step(ProgramWriter& w, std::optional<double> norm) = 0;  // unscales, clips if there is a norm, and updates

  // What a clip makes of a norm that is not finite; of every other one nobody asks.
  NormAs invalid_norm_as(std::optional<double> norm) const {
    if (!norm || std::isfinite(*norm)) return NormAs::one;
    switch (behaviour().norm_masking) {
      case NormMasking::multiply: return NormAs::not_a_number;
      case NormMasking::where: return NormAs::one;
      case NormMasking::kept: return NormAs::infinity;
    }
    return NormAs::one;
  }

  // live-9: a step that moves the scale divides by the new one.
  double unscaled_by() const { return behaviour().scale_update == ScaleUpdate::before_unscale ? scaler_.scale() : scaler_.before_update(); }

  LossScaler scaler_;  // what the step divides by
  Slice norm_;         // fp32, of the scaled gradients
};

}  // namespace gradledger
