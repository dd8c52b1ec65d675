// What loops around PyTorch's wrappers do alike, whatever the gradients are kept in.
#pragma once

#include <functional>

#include "sim/frameworks/torch/grad_scaler.h"
#include "sim/program/program.h"

namespace gradledger::torch {

// GradScaler's step() and update(), once it is known whether a gradient was infinite. grad_scaler.py: step, update, at torch 2.13
void end_scaled_step(GradScaler& scaler, bool found_inf, ProgramWriter& w, const std::function<void()>& optimizer_step);

// What unscale_ and step refuse. grad_scaler.py: unscale_, step, at torch 2.13
void check_unscale(const GradScaler& scaler);
void check_inf_checks(const GradScaler& scaler);

// ours: the gradient of one parameter, where an optimizer applies it inside a backward.
void observe_applied_inside(ProgramWriter& w, const std::string& parameter, const ViewPiece& gradient);

}  // namespace gradledger::torch
