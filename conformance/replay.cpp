#include "conformance/replay.h"

#include <algorithm>
#include <cmath>

#include "ref/probes.h"
#include "sim/frameworks/deepspeed/settings.h"
#include "sim/numeric/dtype_names.h"
#include "sim/numeric/kernels.h"
#include "sim/producers/producers.h"
#include "sim/scenario/layout.h"

namespace gradledger::conform {
namespace {

// The framework's recorded names where they differ from the simulator's.
std::string recorded_name(std::string name) {
  const std::string ours = "fp32_partitioned_groups_flat[";
  if (name.starts_with(ours) && name.ends_with("].grad")) return "fp32_partition.grad[" + name.substr(ours.size(), name.size() - ours.size() - 6) + "]";
  return name;
}

std::string recorded_name(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::all_reduce: return "all_reduce";
    case CollectiveKind::reduce: return "reduce";
    case CollectiveKind::reduce_scatter: return "reduce_scatter_tensor";
    case CollectiveKind::all_gather: return "all_gather_into_tensor";
    case CollectiveKind::broadcast: return "broadcast";
  }
  return "";
}

void append(std::vector<double>& into, const ObservedPiece& piece) {
  const std::size_t at = into.size();
  into.resize(at + piece.numel);
  numeric::convert(Dtype::float64, into.data() + at, piece.dtype, piece.data, piece.numel);
}

}  // namespace

Replay::Replay(const Scenario& scenario, const Timeline& timeline)
    : scenario_(scenario),
      moments_(scenario.world_size, std::vector<ReplayedMoment>(timeline.events.size())),
      groups_(process_groups(scenario)),
      errors_(scenario.world_size),
      initial_loss_scale_(timeline.contract.loss_scale.initial) {
  const auto source = ref::value_source(scenario, timeline, GradientKind::values, 0);
  for (std::uint32_t p = 0; p < scenario.parameters.size(); ++p) {
    initial_weights_.emplace_back(scenario.parameters[p].numel);
    source->initial_parameter(p, 0, initial_weights_.back());
  }
  make_producer(scenario, timeline, {.arithmetic = CollectiveArithmetic::gloo_fp32, .program_bytes_max = program_bytes_max})->run(*source, RunOptions{}, *this);
  index_updates();
}

double Replay::weight(std::size_t rank, std::size_t event, std::size_t parameter, std::size_t element) const {
  const std::int64_t at = latest_[rank].weights[event];
  if (at < 0) return initial_weights_[parameter][element];
  const std::vector<double>& whole = moments_[rank][static_cast<std::size_t>(at)].parameters[parameter];
  return element < whole.size() ? whole[element] : std::nan("");
}

double Replay::norm(std::size_t rank, std::size_t event) const {
  const std::int64_t at = latest_[rank].norm[event];
  return at < 0 ? 0 : *moments_[rank][static_cast<std::size_t>(at)].norm;
}

double Replay::loss_scale(std::size_t rank, std::size_t event) const {
  const std::int64_t at = latest_[rank].loss_scale[event];
  if (at >= 0) return *moments_[rank][static_cast<std::size_t>(at)].loss_scale;
  return initial_loss_scale_;
}

bool Replay::overflow(std::size_t rank, std::size_t event) const {
  const std::int64_t at = latest_[rank].overflow[event];
  return at >= 0 && *moments_[rank][static_cast<std::size_t>(at)].overflow;
}

void Replay::observe(const Observation& o) {
  ReplayedMoment& moment = moments_[o.rank][o.event];
  if (o.role == Role::applied_gradient) keep_applied(o, moment);
  if (!o.at_end) return;
  if (o.role == Role::parameter) return keep_weights(o, moment);
  if (o.role == Role::master_parameter || is_moment(o.role)) return;
  RecordedBuffer& buffer = moment.buffers[recorded_name(std::string(o.buffer))];
  for (const ObservedPiece& piece : o.pieces) {
    if (buffer.dtype.empty()) buffer.dtype = std::string(torch_name_of(piece.dtype));
    append(buffer.values, piece);
  }
}

void Replay::keep_applied(const Observation& o, ReplayedMoment& moment) const {
  if (o.at_end || scenario_.engine.optimizer.type == OptimizerType::sgd) return;
  for (const ObservedPiece& piece : o.pieces) moment.applied.push_back({piece, std::vector<std::byte>(piece.data, piece.data + piece.numel * size_of(piece.dtype))});
}

// Whole parameters, or stage 3's shards, put where they belong.
void Replay::keep_weights(const Observation& o, ReplayedMoment& moment) {
  moment.parameters.resize(scenario_.parameters.size());
  for (const ObservedPiece& piece : o.pieces) {
    if (piece.parameter < 0) continue;
    std::vector<double> values;
    append(values, piece);
    std::vector<double>& whole = moment.parameters[static_cast<std::size_t>(piece.parameter)];
    whole.resize(scenario_.parameters[static_cast<std::size_t>(piece.parameter)].numel, std::nan(""));
    std::copy(values.begin(), values.end(), whole.begin() + piece.parameter_offset);
  }
}

void Replay::collective(const CollectiveRecord& c) {
  RecordedCollective call{recorded_name(c.kind), c.numel, std::string(torch_name_of(c.dtype)), {}, groups_[c.group], {}};
  const bool has_root = c.kind == CollectiveKind::reduce || c.kind == CollectiveKind::broadcast;
  if (has_root) call.root = c.root;
  if (c.kind != CollectiveKind::broadcast && c.kind != CollectiveKind::all_gather) call.operation = name_of(c.op);
  moments_[c.rank][c.event].collectives.push_back(std::move(call));
}

void Replay::step_fact(const StepRecord& m) {
  ReplayedMoment& moment = moments_[m.rank][m.event];
  if (m.fact == StepFact::gradient_norm) moment.norm = m.value;
  if (m.fact == StepFact::loss_scale) moment.loss_scale = m.value;
  if (m.fact == StepFact::skipped) moment.overflow = m.value != 0;
}

void Replay::index_updates() {
  for (const std::vector<ReplayedMoment>& moments : moments_) {
    Latest& latest = latest_.emplace_back();
    std::int64_t weights = -1, norm = -1, loss_scale = -1, overflow = -1;
    for (std::size_t event = 0; event < moments.size(); ++event) {
      if (!moments[event].parameters.empty()) weights = static_cast<std::int64_t>(event);
      if (moments[event].norm) norm = static_cast<std::int64_t>(event);
      if (moments[event].loss_scale) loss_scale = static_cast<std::int64_t>(event);
      if (moments[event].overflow) overflow = static_cast<std::int64_t>(event);
      latest.weights.push_back(weights);
      latest.norm.push_back(norm);
      latest.loss_scale.push_back(loss_scale);
      latest.overflow.push_back(overflow);
    }
  }
}

}  // namespace gradledger::conform
