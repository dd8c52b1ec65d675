#include "conformance/torch/replay.h"

#include <algorithm>

#include "ref/probes.h"
#include "sim/frameworks/torch/ddp/distributed_data_parallel.h"
#include "sim/numeric/dtype_names.h"
#include "sim/numeric/kernels.h"
#include "sim/producers/producers.h"

namespace gradledger::conform::torch {
namespace {

bool reduces(CollectiveKind kind) { return kind != CollectiveKind::all_gather && kind != CollectiveKind::broadcast; }

std::vector<double> values_of(Dtype dtype, const std::byte* data, std::size_t n) {
  std::vector<double> out(n);
  if (dtype == Dtype::int32) std::copy_n(reinterpret_cast<const std::int32_t*>(data), n, out.begin());
  else if (dtype == Dtype::float64) std::copy_n(reinterpret_cast<const double*>(data), n, out.begin());
  else numeric::convert(Dtype::float64, out.data(), dtype, data, n);
  return out;
}

}  // namespace

Replay::Replay(const Expressed& expressed, const Timeline& timeline)
    : scenario_(expressed.scenario), moments_(expressed.scenario.world_size, std::vector<Moment>(timeline.events.size())) {
  const auto source = ref::value_source(scenario_, timeline, GradientKind::values, 0);
  const EngineFactory factory = [&](const EngineContext& context) -> std::unique_ptr<Engine> {
    return std::make_unique<::gradledger::torch::DistributedDataParallel>(context, expressed.config);
  };
  RunOptions options;
  options.show_reductions = true;
  const auto producer = make_producer(scenario_, timeline, {.engines = factory, .arithmetic = CollectiveArithmetic::gloo});
  producer->run(*source, options, *this);
  find_views(producer->ranks());
}

// Where a gradient lies in larger storage: known from the program, as snapshots are values alone.
void Replay::find_views(std::span<const Rank> ranks) {
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    const Program& program = ranks[r].program;
    for (const Op& op : program.ops) {
      if (op.kind != OpKind::observe || op.flag == 0) continue;
      const View& view = program.views[op.index];
      const auto buffer = moments_[r][op.event].buffers.find(view.name);
      if (buffer == moments_[r][op.event].buffers.end() || view.pieces.size() != 1) continue;
      const Slice slice = view.pieces.front().slice;
      if (program.buffers[slice.buffer].numel > slice.numel) buffer->second.bucket_view_offset = slice.offset;
    }
  }
}

std::vector<double> Replay::weights(std::size_t rank, std::size_t event, std::uint32_t parameter) const {
  for (std::size_t at = event + 1; at-- > 0;)
    for (const Weights& weights : moments_[rank][at].weights)
      if (weights.parameter == parameter) return weights.values;
  return std::vector<double>(scenario_.parameters[parameter].numel);
}

void Replay::observe(const Observation& o) {
  if (!o.at_end || is_moment(o.role)) return;
  const ObservedPiece& piece = o.pieces.front();
  const std::vector<double> values = values_of(piece.dtype, piece.data, piece.numel);
  Moment& moment = moments_[o.rank][o.event];
  if (o.role == Role::parameter) moment.weights.push_back({static_cast<std::uint32_t>(piece.parameter), std::string(torch_name_of(piece.dtype)), values});
  else moment.buffers[std::string(o.buffer)] = {std::string(torch_name_of(piece.dtype)), values, std::nullopt};
}

void Replay::collective(const CollectiveRecord& c) {
  Collective call{std::string(name_of(c.kind)), c.numel, std::string(torch_name_of(c.dtype)), "", {}};
  if (reduces(c.kind)) call.operation = c.op == ReduceOp::sum ? "SUM" : c.op == ReduceOp::avg ? "AVG" : "MAX";
  for (std::uint32_t r = 0; r < scenario_.world_size; ++r) call.group.push_back(r);
  moments_[c.rank][c.event].collectives.push_back(std::move(call));
}

// Reductions of a rank end in the order in which they began; what moves data only lies between them.
void Replay::reduction(const ReductionRecord& r) {
  Moment& moment = moments_[r.call.rank][r.call.event];
  std::uint32_t place = 0;
  while (moment.collectives[place].operation.empty() || moment.transfers.contains(place)) ++place;
  const std::size_t n = r.call.numel;
  moment.transfers[place] = {values_of(r.call.dtype, r.input.data(), n), values_of(r.call.dtype, r.output.data(), n)};
}

void Replay::step_fact(const StepRecord& s) {
  if (s.fact == StepFact::loop_norm) moments_[s.rank][s.event].norm = s.value;
  if (s.fact == StepFact::loss_scale) moments_[s.rank][s.event].loss_scale = s.value;
}

}  // namespace gradledger::conform::torch
