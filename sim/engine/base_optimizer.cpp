#include "sim/engine/base_optimizer.h"

#include <cmath>
#include <tuple>
#include <utility>

namespace gradledger {

void BaseOptimizer::initialise(ProgramWriter& w, std::uint32_t numel, const std::string& suffix) {
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

void BaseOptimizer::update(ProgramWriter& w, Slice weights, Slice gradient, std::uint32_t offset) const {
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
  call.scalars.bias_correction1 = static_cast<float>(1.0 - std::pow(config_.beta1, step_));
  call.scalars.bias_correction2 = static_cast<float>(1.0 - std::pow(config_.beta2, step_));
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

void initialise_weights(ProgramWriter& w, Slice weights, std::uint32_t parameter, std::uint32_t parameter_offset) {
  if (weights.numel > 0) w.deposit(weights, no_index, parameter, parameter_offset, 1.0, false);
}

FlatWeights::FlatWeights(const Scenario& scenario, std::uint32_t rank, std::uint32_t number, const RankGroup& group, const std::string& master_name,
                         std::size_t first_part, Dealing dealing)
    : peers_(group.peers),
      rank_(peers_.index_of(rank)),
      number_(number),
      suffix_("[" + std::to_string(number) + "]"),
      of_experts_(group.of_experts),
      scenario_(&scenario),
      layout_(scenario, group.parameters, peers_.size(), dealing),
      parts_(layout_.parts(rank_)),
      first_part_(first_part),
      master_name_(master_name + suffix_),
      optimizer_(group.optimizer, scenario.engine.config.offloads_optimizer()) {
  for (OwnedPart& part : parts_) part.group = number;
}

void FlatWeights::initialise(ProgramWriter& w) {
  const BufferId flat = w.declare("bit16_groups_flat" + suffix_, scenario_->model_dtype, layout_.padded());
  w.allocate(flat);
  weights_ = w.whole(flat);
  for (std::uint32_t p : layout_.order()) initialise_weights(w, weights_.part(layout_.offset(p), scenario_->parameters[p].numel), p, 0);
  w.fill(weights_.part(layout_.numel(), layout_.padded() - layout_.numel()), 0.0);

  const MemorySpace space = optimizer_.host() ? MemorySpace::host : MemorySpace::device;
  const BufferId master = w.declare(master_name_, Dtype::float32, layout_.partition(), space);
  w.allocate(master);
  master_ = w.whole(master);
  w.copy(master_, weights_.part(rank_ * layout_.partition(), layout_.partition()));
  optimizer_.initialise(w, layout_.partition(), suffix_);
}

void FlatWeights::step(ProgramWriter& w, Slice gradient) {
  optimizer_.begin_step();
  if (optimizer_.host()) {
    w.host_waits();
    OnStream host(w, Stream::host);
    optimizer_.update(w, master_, gradient, 0);
  } else {
    optimizer_.update(w, master_, gradient, 0);
  }
  const Slice own = weights_.part(rank_ * layout_.partition(), layout_.partition());
  w.copy(own, master_);
}

void FlatWeights::all_gather(ProgramWriter& w) const {
  const Slice own = weights_.part(rank_ * layout_.partition(), layout_.partition());
  if (peers_.size() > 1)
    w.collective({.kind = CollectiveKind::all_gather, .purpose = Purpose::parameter, .group = peers_.id, .input = own, .output = weights_});
}

void FlatWeights::observe(ProgramWriter& w) const {
  for (std::uint32_t p : layout_.order()) {
    const Slice slice = weights_.part(layout_.offset(p), scenario_->parameters[p].numel);
    w.observe(w.view(scenario_->parameters[p].name, {ViewPiece{slice, static_cast<std::int32_t>(p), 0}}), Role::parameter, 1.0, true);
  }
  const std::vector<ViewPiece> pieces = partition_pieces(master_);
  w.observe(w.view(master_name_, pieces), Role::master_parameter, 1.0, true);
  optimizer_.observe(w, pieces);
}

std::vector<ViewPiece> FlatWeights::partition_pieces(Slice slice) const {
  std::vector<ViewPiece> pieces;
  std::uint32_t end = 0;
  for (const OwnedPart& part : parts_) {
    pieces.push_back({slice.part(part.partition_offset, part.numel), static_cast<std::int32_t>(part.parameter), part.parameter_offset});
    end = part.partition_offset + part.numel;
  }
  if (end < slice.numel) pieces.push_back({slice.part(end, slice.numel - end), -1, 0});
  return pieces;
}

FlatGroups::FlatGroups(const Scenario& scenario, std::uint32_t rank, const std::string& master_name, Dealing dealing)
    : group_of_(scenario.parameters.size()) {
  for (const RankGroup& group : optimizer_groups(scenario, rank)) {
    const auto number = static_cast<std::uint32_t>(groups_.size());
    groups_.emplace_back(scenario, rank, number, group, master_name, parts_.size(), dealing);
    for (std::uint32_t p : group.parameters) group_of_[p] = number;
    order_.insert(order_.end(), group.parameters.begin(), group.parameters.end());
    parts_.insert(parts_.end(), groups_.back().parts().begin(), groups_.back().parts().end());
  }
}

void FlatGroups::initialise(ProgramWriter& w) {
  for (FlatWeights& group : groups_) group.initialise(w);
}

void FlatGroups::all_gather(ProgramWriter& w) const {
  for (const FlatWeights& group : groups_) group.all_gather(w);
}

void FlatGroups::observe(ProgramWriter& w) const {
  for (const FlatWeights& group : groups_) group.observe(w);
}

}  // namespace gradledger
