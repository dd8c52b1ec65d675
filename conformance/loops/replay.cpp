#include "conformance/loops/replay.h"

#include "ref/probes.h"
#include "sim/numeric/kernels.h"
#include "sim/producers/producers.h"

namespace gradledger::conform::loop_runs {
namespace {

std::vector<double> values_of(const ObservedPiece& piece) {
  std::vector<double> out(piece.numel);
  numeric::convert(Dtype::float64, out.data(), piece.dtype, piece.data, piece.numel);
  return out;
}

}  // namespace

Replay::Replay(const Scenario& scenario, const Timeline& timeline) : numel_(scenario.parameters.front().numel), gradients_(scenario.world_size), weights_(scenario.world_size) {
  const auto source = ref::value_source(scenario, timeline, GradientKind::values, 0);
  make_producer(scenario, timeline, {.engines = {}, .arithmetic = CollectiveArithmetic::gloo})->run(*source, RunOptions{}, *this);
}

std::optional<std::vector<double>> Replay::gradient(std::uint32_t rank, std::uint32_t event) const {
  const auto found = gradients_[rank].find(event);
  return found == gradients_[rank].end() ? std::nullopt : std::optional(found->second);
}

std::vector<double> Replay::weights(std::uint32_t rank, std::uint32_t event) const {
  std::vector<double> out(numel_);
  std::vector<bool> found(numel_);
  for (std::size_t r = 0; r < weights_.size(); ++r) {
    const auto& of_rank = weights_[(rank + r) % weights_.size()];
    const auto behind = of_rank.upper_bound(event);
    if (behind == of_rank.begin()) continue;
    const Held& held = std::prev(behind)->second;
    for (std::size_t i = 0; i < numel_; ++i) {
      if (held.held[i] && !found[i]) out[i] = held.values[i];
      found[i] = found[i] || held.held[i];
    }
  }
  return out;
}

void Replay::observe(const Observation& o) {
  if (!o.at_end || is_moment(o.role) || o.pieces.empty()) return;
  if (o.role != Role::parameter) {
    gradients_[o.rank][o.event] = values_of(o.pieces.front());
    return;
  }
  Held& held = weights_[o.rank][o.event];
  held.values.resize(numel_);
  held.held.resize(numel_);
  for (const ObservedPiece& piece : o.pieces) {
    if (piece.parameter < 0) continue;
    const std::vector<double> values = values_of(piece);
    for (std::size_t i = 0; i < values.size(); ++i) {
      held.values[piece.parameter_offset + i] = values[i];
      held.held[piece.parameter_offset + i] = true;
    }
  }
}

}  // namespace gradledger::conform::loop_runs
