#include "sim/engine/base_optimizer.h"

#include <cmath>
#include <tuple>
#include <utility>

namespace gradledger {

void BaseOptimizer::initialise(ProgramWriter& w, std::uint64_t numel, const std::string& suffix) {
  suffix_ = suffix;
  if (!has_moments()) return;
  const MemorySpace space = host_ ? MemorySpace::host : MemorySpace::device;
  for (Slice* moment : {&first_moment_, &second_moment_}) {
    const BufferId b = w.declare(moment == &first_moment_ ? "exp_avg" + suffix : "exp_avg_sq" + suffix, Dtype::float32, numel, space);
    w.allocate(b);
    *moment = w.whole(b);
    w.fill(*moment, 0.0);
  }
}

void BaseOptimizer::update_as_step(std::uint32_t step, ProgramWriter& w, Slice weights, Slice gradient, std::uint64_t offset) const {
  if (weights.numel == 0) return;
  UpdateCall call;
  call.parameter = weights;
  call.gradient = gradient;
  call.scalars.learning_rate = static_cast<float>(config_.learning_rate);
  call.scalars.weight_decay = static_cast<float>(config_.weight_decay);
  if (!has_moments()) return w.sgd(call);
  call.first_moment = first_moment_.part(offset, weights.numel);
  call.second_moment = second_moment_.part(offset, weights.numel);
  call.cpu_formula = host_;
  call.scalars.decoupled_decay = config_.type == OptimizerType::adamw;
  call.scalars.beta1 = static_cast<float>(config_.beta1);
  call.scalars.one_minus_beta1 = static_cast<float>(1.0 - config_.beta1);
  call.scalars.beta2 = static_cast<float>(config_.beta2);
  call.scalars.one_minus_beta2 = static_cast<float>(1.0 - config_.beta2);
  call.scalars.epsilon = static_cast<float>(config_.epsilon);
  call.scalars.bias_correction1 = static_cast<float>(1.0 - std::pow(config_.beta1, step));
  call.scalars.bias_correction2 = static_cast<float>(1.0 - std::pow(config_.beta2, step));
  w.adam(call);
}

void BaseOptimizer::observe(ProgramWriter& w, const std::vector<ViewPiece>& pieces) const {
  if (!has_moments()) return;
  for (const auto& [name, moment, role] : {std::tuple{"exp_avg", first_moment_, Role::first_moment}, std::tuple{"exp_avg_sq", second_moment_, Role::second_moment}}) {
    std::vector<ViewPiece> of_moment = pieces;
    for (ViewPiece& piece : of_moment) piece.slice = moment.part(piece.slice.offset, piece.slice.numel);
    w.observe(w.view(name + suffix_, std::move(of_moment)), role, 1.0, true);
  }
}

void initialise_weights(ProgramWriter& w, Slice weights, std::uint32_t parameter, std::uint64_t parameter_offset) {
  if (weights.numel > 0) w.deposit(weights, no_index, parameter, parameter_offset, 1.0, false);
}

}  // namespace gradledger
