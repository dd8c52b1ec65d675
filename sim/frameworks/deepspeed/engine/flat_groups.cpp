#include "sim/frameworks/deepspeed/engine/flat_groups.h"

#include "sim/frameworks/deepspeed/settings.h"

namespace gradledger {

FlatWeights::FlatWeights(const Scenario& scenario, std::uint32_t rank, std::uint32_t number, const RankGroup& group, const std::string& master_name, std::size_t first_part,
                         Dealing dealing)
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
      optimizer_(group.optimizer, deepspeed_config(scenario).offloads_optimizer()) {
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
  if (peers_.size() == 1) return;
  w.collective({.kind = CollectiveKind::all_gather, .purpose = Purpose::parameter, .group = peers_.id, .communicator = peers_.communicator, .input = own, .output = weights_});
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
  std::uint64_t end = 0;
  for (const OwnedPart& part : parts_) {
    pieces.push_back({slice.part(part.partition_offset, part.numel), static_cast<std::int32_t>(part.parameter), part.parameter_offset});
    end = part.partition_offset + part.numel;
  }
  if (end < slice.numel) pieces.push_back({slice.part(end, slice.numel - end), -1, 0});
  return pieces;
}

FlatGroups::FlatGroups(const Scenario& scenario, std::uint32_t rank, const std::vector<RankGroup>& groups, const std::string& master_name, Dealing dealing)
    : group_of_(scenario.parameters.size()) {
  for (const RankGroup& group : groups) {
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
