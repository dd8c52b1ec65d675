// What loops around PyTorch's wrappers do alike, whatever the gradients are kept in.
#pragma once

#include <functional>
#include <string>

#include "sim/engine/tensors.h"
#include "sim/frameworks/torch/grad_scaler.h"
#include "sim/program/program.h"
#include "sim/scenario/layout.h"

namespace gradledger::torch {

// GradScaler's step() and update(), once it is known whether a gradient was infinite. grad_scaler.py: step, update, at torch 2.13
void end_scaled_step(GradScaler& scaler, bool found_inf, ProgramWriter& w, const std::function<void()>& optimizer_step);

// SGD without weight decay on weights that are not fp32: its one multiplication is exact, as admission sees to it. torch/optim/sgd.py: sgd, at torch 2.13
void low_precision_sgd(TensorTable& tensors, ProgramWriter& w, const std::string& name, Dtype dtype, Slice weights, Slice gradient, double learning_rate);

// ours: the gradient of one parameter, where an optimizer applies it inside a backward.
void observe_applied_inside(ProgramWriter& w, const std::string& parameter, const ViewPiece& gradient);

// ours: a scalar that the loop itself reduces, such as a loss to be shown.
void all_reduce_scalar(TensorTable& tensors, ProgramWriter& w, const ProcessGroup& group);

}  // namespace gradledger::torch
