#include "sim/frameworks/deepspeed/engine/scaled_optimizer.h"

#include <cmath>
#include <limits>

#include "sim/frameworks/deepspeed/engine/muon.h"
#include "sim/frameworks/deepspeed/settings.h"

namespace gradledger {

void ScaledOptimizer::on_value(std::uint32_t stage, double value, ProgramWriter& w) {
  const bool clips = gradient_clipping_of(scenario()) > 0 && !linear();
  if (stage == norm_known) {
    if (refuses_invalid_norms() && !std::isfinite(value))
      throw FrameworkError{"RuntimeError", "linalg.vector_norm: Expected a floating point or complex tensor as input. Got Long"};
    if (!clips) return finish_step(w, std::nullopt);
    report_clipping_norm(w, norm_of(value) / unscaled_by());
    return finish_step(w, norm_of(value));
  }
  // From 0.19.8 on the norm is asked for before the scale moves. Nothing in a linear run makes it infinite but what the script plants.
  const bool norm_decides = decides_on_overflow() && skips_invalid_norms();
  const bool goes_on = stage == overflow_known && !skips_on(value != 0.0);
  if (goes_on && norm_decides) {
    require_gradients();
    emit_norm(w);
    return read(w, norm_checked, awaited_norm());
  }
  const bool overflow = stage == norm_checked ? !std::isfinite(value) : value != 0.0;
  scaler_.update(overflow);
  if (goes_on) require_gradients();
  report_decision(w, overflow && skips_on(overflow), scaler_.scale());  // a step may be left out without one
  if (skips_on(overflow)) {
    if (norm_decides && !uses_muon(scenario())) w.report(StepFact::gradient_norm, std::numeric_limits<double>::infinity());
    return skip_step(w);
  }
  if (stage == overflow_known) emit_norm(w);
  // Muon's is the norm of its updates, which nobody knows here.
  if (!uses_muon(scenario())) w.report(StepFact::gradient_norm, norm_, reported_norm_factor());
  if (!clips && (linear() || !refuses_invalid_norms())) return finish_step(w, std::nullopt);
  if (stage == norm_checked) return on_value(norm_known, value, w);
  read(w, norm_known, awaited_norm());
}

}  // namespace gradledger
