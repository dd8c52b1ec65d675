#include "conformance/torch/replay.h"

#include <algorithm>

#include <cmath>

#include <fmt/format.h>

#include "ref/probes.h"
#include "sim/numeric/dtype_names.h"
#include "sim/numeric/kernels.h"
#include "sim/producers/producers.h"
#include "sim/scenario/layout.h"

namespace gradledger::conform::torch {
namespace {

bool reduces(CollectiveKind kind) { return kind != CollectiveKind::all_gather && kind != CollectiveKind::broadcast; }

std::vector<double> values_of(Dtype dtype, const std::byte* data, std::size_t n) {
  std::vector<double> out(n);
  if (dtype == Dtype::uint8) std::copy_n(reinterpret_cast<const std::uint8_t*>(data), n, out.begin());
  else if (dtype == Dtype::int32) std::copy_n(reinterpret_cast<const std::int32_t*>(data), n, out.begin());
  else if (dtype == Dtype::float64) std::copy_n(reinterpret_cast<const double*>(data), n, out.begin());
  else numeric::convert(Dtype::float64, out.data(), dtype, data, n);
  return out;
}

// As Python writes a number.
std::string python_text(double x) {
  std::string out = fmt::format("{}", x);
  if (out.find_first_of(".en") == std::string::npos) out += ".0";
  return out;
}

std::string operation_of(const CollectiveCall& c) {
  if (!reduces(c.kind)) return "";
  switch (c.op) {
    case ReduceOp::sum: return "SUM";
    case ReduceOp::avg: return "AVG";
    case ReduceOp::max: return "MAX";
    case ReduceOp::premultiplied_sum: return "PREMUL_SUM(" + python_text(c.factor) + ")";
    case ReduceOp::other: return "";
  }
  return "";
}

// A flag is a byte here, and a float of PyTorch's.
std::string dtype_text(Dtype dtype) { return std::string(torch_name_of(dtype == Dtype::uint8 ? Dtype::float32 : dtype)); }

}  // namespace

Replay::Replay(const Expressed& expressed, const Timeline& timeline, const Wrapper& wrapper)
    : scenario_(expressed.scenario), wrapper_(wrapper), moments_(expressed.scenario.world_size, std::vector<Moment>(timeline.events.size())) {
  const auto source = ref::value_source(scenario_, timeline, GradientKind::values, 0);
  RunOptions options;
  options.show_reductions = true;
  const auto producer = make_producer(scenario_, timeline, {.engines = wrapper.engines(scenario_), .arithmetic = CollectiveArithmetic::gloo});
  producer->run(*source, options, *this);
  take_collectives(producer->ranks());
  if (wrapper.tells_views()) find_views(producer->ranks());
}

// In the order in which the host issues them: those of one stream may start before earlier ones of another.
void Replay::take_collectives(std::span<const Rank> ranks) {
  const std::vector<std::vector<std::uint32_t>> groups = process_groups(scenario_);
  for (std::uint32_t r = 0; r < ranks.size(); ++r) {
    const Program& program = ranks[r].program;
    for (const Op& op : program.ops) {
      if (op.kind != OpKind::collective) continue;
      const CollectiveCall& c = program.collectives[op.index];
      if (c.purpose == Purpose::parameter && !wrapper_.tells_gathers()) continue;
      Moment& moment = moments_[r][op.event];
      if (const auto transfer = transfers_.find({r, c.group, c.sequence}); transfer != transfers_.end())
        moment.transfers[static_cast<std::uint32_t>(moment.collectives.size())] = transfer->second;
      std::string kind(name_of(c.kind));
      if (c.kind == CollectiveKind::all_gather && wrapper_.gathers_into_lists()) kind += "_list";
      moment.collectives.push_back({kind, c.input.numel, dtype_text(program.buffers[c.input.buffer].dtype), operation_of(c), groups[c.group]});
    }
  }
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

std::vector<double> Replay::weights(std::size_t rank, std::uint32_t event, std::uint32_t parameter) const {
  for (std::size_t at = event == never ? 0 : event + std::size_t{1}; at-- > 0;)
    for (const Weights& weights : moments_[rank][at].weights)
      if (weights.parameter == parameter) return weights.values;
  return std::vector<double>(wrapper_.numel_on(scenario_, static_cast<std::uint32_t>(rank), parameter));
}

void Replay::observe(const Observation& o) {
  if (!o.at_end || is_moment(o.role)) return;
  const ObservedPiece& piece = o.pieces.front();
  std::vector<double> values;  // of a flat buffer those of all its parameters, and of the padding
  for (const ObservedPiece& each : o.pieces) {
    const std::vector<double> own = values_of(each.dtype, each.data, each.numel);
    values.insert(values.end(), own.begin(), own.end());
  }
  Moment& moment = moments_[o.rank][o.event];
  if (o.role == Role::parameter) moment.weights.push_back({static_cast<std::uint32_t>(piece.parameter), piece.parameter_offset, std::string(torch_name_of(piece.dtype)), values});
  else
    moment.buffers[wrapper_.recorded_name(std::string(o.buffer))] = {std::string(torch_name_of(piece.dtype)), values, std::nullopt,
                                                                     wrapper_.tells_offsets() ? piece.parameter_offset : 0};
}

void Replay::reduction(const ReductionRecord& r) {
  const std::size_t n = r.call.numel, size = size_of(r.call.dtype);
  transfers_[{r.call.rank, r.call.group, r.call.sequence}] = {values_of(r.call.dtype, r.input.data(), n), values_of(r.call.dtype, r.output.data(), r.output.size() / size)};
}

void Replay::step_fact(const StepRecord& s) {
  if (s.fact == StepFact::loop_norm) moments_[s.rank][s.event].norm = s.value;
  if (s.fact == StepFact::loss_scale) moments_[s.rank][s.event].loss_scale = s.value;
}

}  // namespace gradledger::conform::torch
