#include "sim/frameworks/torch/loop_step.h"

namespace gradledger::torch {

void end_scaled_step(GradScaler& scaler, bool found_inf, ProgramWriter& w, const std::function<void()>& optimizer_step) {
  w.report(StepFact::skipped, found_inf ? 1.0 : 0.0);
  if (found_inf) w.report(StepFact::updated, 0.0);
  else optimizer_step();
  scaler.update(found_inf);
  w.report(StepFact::loss_scale, scaler.scale());
}

void observe_applied_inside(ProgramWriter& w, const std::string& parameter, const ViewPiece& gradient) {
  w.observe(w.view(parameter + ".grad in its hook", {gradient}), Role::applied_gradient, 1.0, false);
}

}  // namespace gradledger::torch
