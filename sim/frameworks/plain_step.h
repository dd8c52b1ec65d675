// What a loop does to weights and scalars by itself, whatever its gradients are kept in.
#pragma once

#include <string>

#include "sim/engine/tensors.h"
#include "sim/program/program.h"
#include "sim/scenario/layout.h"

namespace gradledger {

// SGD without weight decay on weights that are not fp32: its one multiplication is exact, as admission sees to it. torch/optim/sgd.py: sgd, at torch 2.13
void low_precision_sgd(TensorTable& tensors, ProgramWriter& w, const std::string& name, Dtype dtype, Slice weights, Slice gradient, double learning_rate);

// ours: a scalar that the loop itself reduces, such as a loss to be shown.
void all_reduce_scalar(TensorTable& tensors, ProgramWriter& w, const ProcessGroup& group);

}  // namespace gradledger
