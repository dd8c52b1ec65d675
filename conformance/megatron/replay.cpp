#include "conformance/megatron/replay.h"

#include <algorithm>

#include "ref/probes.h"
#include "sim/frameworks/megatron/engine_setup.h"
#include "sim/numeric/dtype_names.h"
#include "sim/numeric/kernels.h"
#include "sim/producers/producers.h"
#include "sim/scenario/layout.h"

namespace gradledger::conform::megatron {
namespace {

using ::gradledger::megatron::BucketGroup;
using ::gradledger::megatron::ChildOptimizer;
using ::gradledger::megatron::MegatronEngine;
using ::gradledger::megatron::ParamAndGradBuffer;

std::vector<double> values_of(const ObservedPiece& piece) {
  std::vector<double> out(piece.numel);
  if (piece.dtype == Dtype::float64) std::copy_n(reinterpret_cast<const double*>(piece.data), piece.numel, out.begin());
  else numeric::convert(Dtype::float64, out.data(), piece.dtype, piece.data, piece.numel);
  return out;
}

constexpr std::string_view padding_of = " padding";
constexpr std::string_view weights_of = "weights of ";

// The engine, with snapshots as the recorder took them: every main_grad whole, the optimizers' gradients, and what the host knows.
class Watched final : public Engine {
 public:
  Watched(std::unique_ptr<MegatronEngine> engine, const std::map<std::uint32_t, std::string>& names, HostState& host) : engine_(std::move(engine)), names_(&names), host_(&host) {}

  std::unique_ptr<Engine> clone() const override { return std::make_unique<Watched>(std::make_unique<MegatronEngine>(*engine_), *names_, *host_); }
  void initialise(ProgramWriter& w) override {
    engine_->initialise(w);
    for (const ParamAndGradBuffer& buffer : engine_->ddp().buffers()) host_->layout.push_back(layout_of(buffer));
  }
  void handle(const Event& event, ProgramWriter& w) override {
    stepped_ = event.is<events::Step>();
    engine_->handle(event, w);
  }
  bool suspended() const override { return engine_->suspended(); }
  void resume(double value, ProgramWriter& w) override { engine_->resume(value, w); }

  void observe(ProgramWriter& w) override {
    const auto show = [&](const std::string& name, Slice slice) {
      if (slice.numel > 0) w.observe(w.view(name, {{slice, -1, 0}}), Role::scratch, 1.0, true);
    };
    for (const auto& [p, name] : *names_)
      if (engine_->ddp().main_grad(p).buffer != no_index) show(name + ".main_grad", engine_->ddp().main_grad(p));
    std::vector<Counted>& counted = host_->counted[w.event()];
    counted.clear();
    for (const ChildOptimizer& child : engine_->optimizers()) {
      counted.push_back({child.stats_group().ranks.listed(), {}});
      for (std::size_t i = 0; i < child.pieces().size(); ++i) {
        const auto& piece = child.pieces()[i];
        if (piece.has_grad) show(child.grad_name(i), piece.grad());
        if (piece.has_grad && child.in_fp32()) show(names_->at(piece.parameter) + ".grad", piece.grad());
        if (engine_->counts_zeros() && child.is_counted(piece)) counted.back().gradients.push_back(child.grad_name(i));
      }
    }
    for (const auto& [p, name] : *names_)
      if (stepped_) show(std::string(weights_of) + std::to_string(p), engine_->ddp().weights(p));
    for (std::size_t b = 0; b < engine_->ddp().buffers().size(); ++b) show_padding(b, w);
    auto& groups = host_->groups[w.event()];
    for (std::size_t g = 0; g < engine_->ddp().groups().size(); ++g) groups["group" + std::to_string(g)] = state_of(engine_->ddp().groups()[g]);
  }

 private:
  // What lies between the parameters, piece by piece.
  void show_padding(std::size_t b, ProgramWriter& w) const {
    const ParamAndGradBuffer& buffer = engine_->ddp().buffers()[b];
    std::vector<std::pair<std::uint32_t, std::uint32_t>> taken;
    for (const auto& p : buffer.layout.parameters) taken.emplace_back(p.begin, p.end);
    std::sort(taken.begin(), taken.end());
    taken.emplace_back(buffer.layout.numel, buffer.layout.numel);
    std::vector<ViewPiece> pieces;
    std::uint32_t at = 0;
    for (const auto& [begin, end] : taken) {
      if (begin > at) pieces.push_back({buffer.grad_data.part(at, begin - at), -1, 0});
      at = std::max(at, end);
    }
    if (!pieces.empty()) w.observe(w.view("buffer" + std::to_string(b) + std::string(padding_of), std::move(pieces)), Role::scratch, 1.0, true);
  }

  std::map<std::string, std::uint32_t> named(const std::map<std::uint32_t, std::uint32_t>& counts) const {
    std::map<std::string, std::uint32_t> out;
    for (const auto& [p, count] : counts) out[names_->at(p)] = count;
    return out;
  }

  GroupState state_of(const BucketGroup& group) const {
    return {group.is_last_microbatch(),   group.is_first_batch(),         group.param_gather_dispatched(),
            group.grad_reduce_finished(), group.has_grad_reduce_handle(), group.has_param_gather_handle(),
            named(group.ready()),         named(group.golden())};
  }

  BufferLayout layout_of(const ParamAndGradBuffer& buffer) const {
    BufferLayout out{std::string(torch_name_of(buffer.param_dtype)),
                     std::string(torch_name_of(buffer.grad_dtype)),
                     buffer.layout.numel,
                     buffer.layout.numel_unpadded,
                     {},
                     buffer.gradient_scaling_factor,
                     buffer.group.ranks.listed(),
                     {}};
    for (const auto& bucket : buffer.layout.buckets) out.buckets.push_back({static_cast<double>(bucket.begin), static_cast<double>(bucket.end)});
    for (const auto& p : buffer.layout.parameters) out.places[names_->at(p.parameter)] = {static_cast<double>(p.begin), static_cast<double>(p.end), static_cast<double>(p.bucket)};
    return out;
  }

  std::unique_ptr<MegatronEngine> engine_;
  const std::map<std::uint32_t, std::string>* names_;
  HostState* host_;
  bool stepped_ = false;
};

}  // namespace

Replay::Replay(const Expressed& expressed, const Timeline& timeline)
    : expressed_(expressed),
      groups_(process_groups(expressed.scenario)),
      moments_(expressed.scenario.world_size, std::vector<Moment>(timeline.events.size())),
      hosts_(expressed.scenario.world_size) {
  const auto source = ref::value_source(expressed.scenario, timeline, GradientKind::values, 0);
  const ::gradledger::megatron::WorldGroups groups(expressed.scenario);
  const EngineFactory factory = [&](const EngineContext& context) -> std::unique_ptr<Engine> {
    auto setup = ::gradledger::megatron::make_setup(context, groups, expressed.config, ::gradledger::megatron::Machine::recorded_cpu);
    return std::make_unique<Watched>(std::make_unique<MegatronEngine>(std::move(setup)), expressed.names[context.rank], hosts_[context.rank]);
  };
  const auto producer = make_producer(expressed.scenario, timeline, {.engines = factory, .arithmetic = CollectiveArithmetic::gloo_fp32});
  producer->run(*source, RunOptions{}, *this);
}

std::optional<double> Replay::zeros(std::size_t rank, std::uint32_t event) const {
  const auto counted_on = [&](std::size_t r) {
    const auto found = hosts_[r].counted.find(event);
    return found == hosts_[r].counted.end() ? nullptr : &found->second;
  };
  const std::vector<Counted>* own = counted_on(rank);
  if (!own) return std::nullopt;
  double out = 0;
  for (std::size_t c = 0; c < own->size(); ++c)
    for (const std::uint32_t r : (*own)[c].ranks) {
      const std::vector<Counted>* others = counted_on(r);
      if (!others || others->size() <= c) return std::nullopt;
      for (const std::string& name : (*others)[c].gradients) {
        const auto snapshot = moments_[r][event].buffers.find(name);
        if (snapshot == moments_[r][event].buffers.end()) return std::nullopt;
        out += static_cast<double>(std::count(snapshot->second.values.begin(), snapshot->second.values.end(), 0.0));
      }
    }
  return out;
}

// What an error leaves of an operation does not run.
Moment Replay::at(std::size_t rank, EventRange events) const {
  for (std::uint32_t e = events.first; e < events.last; ++e)
    if (!moments_[rank][e].error.empty()) events.last = e;
  Moment out = moments_[rank][events.last];
  out.collectives.clear();
  for (std::uint32_t e = events.first; e <= events.last; ++e) {
    const Moment& one = moments_[rank][e];
    out.collectives.insert(out.collectives.end(), one.collectives.begin(), one.collectives.end());
    if (!one.error.empty()) out.error = one.error;
  }
  const auto state = hosts_[rank].groups.find(events.last);
  if (state != hosts_[rank].groups.end()) out.groups = state->second;
  return out;
}

void Replay::observe(const Observation& o) {
  if (!o.at_end || o.role != Role::scratch) return;
  Moment& moment = moments_[o.rank][o.event];
  const std::string name(o.buffer);
  if (name.ends_with(padding_of)) {
    std::uint32_t& nonzero = moment.padding_nonzero[name.substr(0, name.size() - padding_of.size()) + ".padding_nonzero"];
    for (const ObservedPiece& piece : o.pieces)
      for (const double x : values_of(piece)) nonzero += x != 0;
  } else if (name.starts_with(weights_of)) {
    moment.weights.push_back(values_of(o.pieces.front()));
  } else {
    moment.buffers[name] = {std::string(torch_name_of(o.pieces.front().dtype)), values_of(o.pieces.front())};
  }
}

// Flags of a step are bytes in the model, fp32 or int32 in Megatron; a count of int64 is of fp64.
void Replay::collective(const CollectiveRecord& c) {
  const std::vector<std::uint32_t>& ranks = groups_[c.group];
  Collective call{std::string(name_of(c.kind)), c.numel, std::string(torch_name_of(c.dtype)), "", ranks};
  if (c.kind == CollectiveKind::all_gather) call.numel *= static_cast<std::uint32_t>(ranks.size());
  else if (c.kind != CollectiveKind::broadcast) call.operation = c.op == ReduceOp::sum ? "SUM" : c.op == ReduceOp::avg ? "AVG" : "MAX";
  if (c.purpose == Purpose::control && c.dtype == Dtype::float64) call.dtype = "int64";
  if (c.dtype == Dtype::uint8) call.dtype = c.purpose == Purpose::overflow ? "float32" : "int32";
  moments_[c.rank][c.event].collectives.push_back(std::move(call));
}

void Replay::step_fact(const StepRecord& s) {
  Moment& moment = moments_[s.rank][s.event];
  if (s.fact == StepFact::updated) moment.updated = s.value != 0;
  if (s.fact == StepFact::gradient_norm) moment.norm = s.value;
  if (s.fact == StepFact::loss_scale) moment.loss_scale = s.value;
}

}  // namespace gradledger::conform::megatron
