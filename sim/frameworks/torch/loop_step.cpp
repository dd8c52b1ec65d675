#include "sim/frameworks/torch/loop_step.h"

#include "sim/engine/engine.h"

namespace gradledger::torch {

void end_scaled_step(GradScaler& scaler, bool found_inf, ProgramWriter& w, const std::function<void()>& optimizer_step) {
  w.report(StepFact::skipped, found_inf ? 1.0 : 0.0);
  if (found_inf) w.report(StepFact::updated, 0.0);
  else optimizer_step();
  scaler.update(found_inf);
  w.report(StepFact::loss_scale, scaler.scale());
}

void check_unscale(const GradScaler& scaler) {
  if (!scaler.initialised())
    throw FrameworkError{"AssertionError",
                         "Attempted unscale_ but _scale is None.  This may indicate your script did not use scaler.scale(loss or outputs) earlier in the iteration."};
  if (scaler.unscaled()) throw FrameworkError{"RuntimeError", "unscale_() has already been called on this optimizer since the last update()."};
}

void check_inf_checks(const GradScaler& scaler) {
  if (!scaler.inf_checks_recorded()) throw FrameworkError{"AssertionError", "No inf checks were recorded for this optimizer."};
}

void observe_applied_inside(ProgramWriter& w, const std::string& parameter, const ViewPiece& gradient) {
  w.observe(w.view(parameter + ".grad in its hook", {gradient}), Role::applied_gradient, 1.0, false);
}

}  // namespace gradledger::torch
