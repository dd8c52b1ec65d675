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
  const auto behind = weights_[rank].upper_bound(event);
  return behind == weights_[rank].begin() ? std::vector<double>(numel_) : std::prev(behind)->second;
}

void Replay::observe(const Observation& o) {
  if (!o.at_end || is_moment(o.role) || o.pieces.empty()) return;
  (o.role == Role::parameter ? weights_ : gradients_)[o.rank][o.event] = values_of(o.pieces.front());
}

}  // namespace gradledger::conform::loop_runs
