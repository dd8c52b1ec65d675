#include "conformance/judged/recorded_producer.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "ref/bounded.h"
#include "ref/dtype_facts.h"
#include "ref/loss_scale.h"
#include "sim/frameworks/deepspeed/settings.h"
#include "sim/numeric/dtype_names.h"
#include "sim/numeric/kernels.h"

namespace gradledger::conform {
namespace {

// Numbers of any other kind fit this one.
Dtype dtype_of(const std::string& name) { return floating_dtype_named(name).value_or(Dtype::float64); }

// By the names of the buffers that the run had at some time: those of partitions are there behind the first reduction at the latest. Where steps make
// the reductions, there may be none behind any operation, and the stage that was asked for is taken.
Division division_of(const Recording& recording, const Timeline& timeline) {
  const auto has = [&](const char* name) {
    return std::any_of(recording.ranks.begin(), recording.ranks.end(), [&](const auto& moments) {
      return std::any_of(moments.begin(), moments.end(),
                         [&](const RecordedMoment& m) { return std::any_of(m.buffers.begin(), m.buffers.end(), [&](const auto& b) { return b.first.starts_with(name); }); });
    });
  };
  if (has("fp32_groups_gradient")) return Division::bf16_optimizer;
  if (has("grad_partition[") || has("fp32_partition.grad[")) return Division::sharded;
  for (const char* name : {"averaged_gradients[", "all_grad_tensors[", "accumulated_grads_in_cpu[", "single_partition_of_fp32_groups["})
    if (has(name)) return Division::flat;
  const std::uint32_t stage = deepspeed_config(recording.scenario).zero.stage;
  return stage == 0 || !timeline.reductions.empty() ? Division::none : stage == 3 ? Division::sharded : Division::flat;
}

// A snapshot on its way to a sink.
class Shown {
 public:
  Shown(std::uint32_t event, std::uint32_t rank, std::string name, Role role) : name_(std::move(name)) {
    observation_.event = event;
    observation_.rank = rank;
    observation_.role = role;
  }

  Observation& observation() { return observation_; }

  // values: of all stretches, one after another.
  void hand_over(const std::vector<Stretch>& stretches, const std::vector<double>& values, const std::vector<double>& errors, Dtype dtype, TraceSink& sink) {
    std::vector<std::byte> stored(values.size() * size_of(dtype));
    if (dtype == Dtype::float64) std::copy_n(reinterpret_cast<const std::byte*>(values.data()), stored.size(), stored.data());
    else numeric::convert(dtype, stored.data(), Dtype::float64, values.data(), values.size());
    std::vector<ObservedPiece> pieces;
    std::size_t at = 0;
    for (const Stretch& s : stretches) {
      pieces.push_back({s.parameter, s.offset, s.numel, dtype, stored.data() + at * size_of(dtype), errors.empty() ? nullptr : errors.data() + at});
      at += s.numel;
    }
    observation_.buffer = name_;
    observation_.pieces = pieces;
    sink.observe(observation_);
  }

 private:
  std::string name_;
  Observation observation_;
};

}  // namespace

RecordedProducer::RecordedProducer(const Recording& recording, const Timeline& timeline)
    : recording_(recording),
      timeline_(timeline),
      layout_(recording.scenario, timeline, division_of(recording, timeline)),
      operations_(operations_by_event(recording, timeline.events.size())) {
  for (std::uint32_t rank = 0; rank < recording.ranks.size(); ++rank) {
    std::uint32_t last = never;
    weights_.emplace_back();
    for (std::uint32_t event = 0; event < timeline.events.size(); ++event) {
      weights_.back().push_back(last);
      if (has(rank, event) && !moment(rank, event).parameters.empty()) last = event;
    }
  }
}

RunSummary RecordedProducer::run(const GradientSource& source, const RunOptions& options, TraceSink& sink) {
  expects(!options.linear && !options.wide && !options.dry, "a run that is over has the one pass that it had");
  if (updates_.empty()) find_updates(source);
  const std::uint32_t world = recording_.scenario.world_size;
  RunSummary summary;
  summary.completed = true;
  for (std::uint32_t event = 0; event < timeline_.events.size(); ++event) {
    for (std::uint32_t rank = 0; rank < world; ++rank) {
      if (!has(rank, event) || !moment(rank, event).error.empty()) continue;
      show_collectives(event, rank, sink);
      if (timeline_.events[event].is<events::Step>()) show_step(updates_[event], rank, sink);
    }
    for (std::uint32_t rank = 0; rank < world; ++rank) {
      if (!has(rank, event)) continue;
      const RecordedMoment& now = moment(rank, event);
      if (!now.error.empty()) {
        // What a rank that goes on held there is not recorded, and nothing is over for it.
        const std::size_t colon = now.error.find(':');
        const std::string message = colon == std::string::npos ? "" : now.error.substr(std::min(colon + 2, now.error.size()));
        sink.engine_error({rank, event, now.error.substr(0, colon), message});
        summary.completed = false;
        continue;
      }
      show_buffers(event, rank, sink);
      show_weights(event, rank, sink);
      sink.event_done(rank, event);
    }
  }
  return summary;
}

// ---- what steps did ---------------------------------------------------------------------------------------------------------------------

const std::vector<std::vector<double>>& RecordedProducer::weights_before(std::uint32_t rank, std::uint32_t event) const {
  const std::uint32_t at = weights_[rank][event];
  return at == never ? initial_ : moment(rank, at).parameters;
}

// Whether some rank held a gradient that is not finite when the event began.
bool RecordedProducer::holds_nonfinite(std::uint32_t event) const {
  for (std::uint32_t rank = 0; rank < recording_.ranks.size(); ++rank) {
    if (!has(rank, event) || operations_[rank][event] == 0) continue;
    for (const auto& [name, buffer] : recording_.ranks[rank][operations_[rank][event] - 1].buffers)
      if (std::any_of(buffer.values.begin(), buffer.values.end(), [](double x) { return !std::isfinite(x); })) return true;
  }
  return false;
}

// Weights tell an update. Where none changed and a gradient was not finite the step skipped; its loss scale follows the documentation, as none is
// recorded.
void RecordedProducer::find_updates(const GradientSource& source) {
  for (std::uint32_t p = 0; p < recording_.scenario.parameters.size(); ++p) {
    initial_.emplace_back(recording_.scenario.parameters[p].numel);
    source.initial_parameter(p, 0, initial_.back());
  }
  ref::LossScaleModel scale(timeline_.contract.loss_scale);
  for (std::uint32_t event = 0; event < timeline_.events.size(); ++event) {
    Update update{event, false, false, scale.scale()};
    if (timeline_.events[event].is<events::Step>()) {
      for (std::uint32_t rank = 0; rank < recording_.ranks.size(); ++rank) {
        if (!has(rank, event) || moment(rank, event).parameters.empty()) continue;
        const auto& before = weights_before(rank, event);
        for (std::size_t p = 0; p < before.size(); ++p) {
          const std::vector<double>& after = moment(rank, event).parameters[p];
          update.changed = update.changed || std::memcmp(before[p].data(), after.data(), after.size() * sizeof(double)) != 0;
        }
      }
      update.skipped = !update.changed && timeline_.contract.skips_nonfinite && timeline_.events[event].closes() && holds_nonfinite(event);
      if (update.changed || update.skipped) scale.step(update.skipped);
      update.loss_scale = scale.scale();
    }
    updates_.push_back(update);
  }
}

double RecordedProducer::loss_scale(std::uint32_t event) const { return updates_[event].loss_scale; }

void RecordedProducer::show_step(const Update& update, std::uint32_t rank, TraceSink& sink) const {
  const RecordedMoment& now = moment(rank, update.event);
  if (now.parameters.empty()) return;
  sink.step_fact({rank, update.event, StepFact::updated, update.changed ? 1.0 : 0.0});
  // A step that went on shows what it applied, or says nothing of skipping.
  if (timeline_.contract.skips_nonfinite && (update.skipped || (update.changed && weights_tell_the_gradient(rank))))
    sink.step_fact({rank, update.event, StepFact::skipped, update.skipped ? 1.0 : 0.0});
  if (!update.changed) return;
  // Frameworks go on reporting the norm of an earlier update; this one's is new.
  if (now.norm) sink.step_fact({rank, update.event, StepFact::gradient_norm, *now.norm});
  show_applied(update.event, rank, sink);
}

bool RecordedProducer::weights_tell_the_gradient(std::uint32_t rank) const {
  const std::vector<Stretch> stretches = layout_.stepped_by(rank);
  return std::all_of(stretches.begin(), stretches.end(), [&](const Stretch& s) {
    const OptimizerConfig& optimizer = timeline_.contract.optimizer_of(static_cast<std::uint32_t>(s.parameter));
    return optimizer.type == OptimizerType::sgd && optimizer.weight_decay == 0;
  });
}

// (before - after) / rate. Weights are rounded to the model dtype from masters in fp32, or in place; each of these roundings may be in the difference.
void RecordedProducer::show_applied(std::uint32_t event, std::uint32_t rank, TraceSink& sink) const {
  if (!weights_tell_the_gradient(rank)) return;
  const auto& before = weights_before(rank, event);
  const auto& after = moment(rank, event).parameters;
  const ref::DtypeFacts fp32 = ref::facts_of(Dtype::float32), model = ref::facts_of(recording_.scenario.model_dtype);
  const ref::Rounding in_fp32{fp32.unit_roundoff(), fp32.tiny()}, in_model{model.unit_roundoff(), model.tiny()};
  const std::vector<Stretch> stretches = layout_.stepped_by(rank);
  std::vector<double> values, errors;
  for (const Stretch& s : stretches) {
    const auto p = static_cast<std::uint32_t>(s.parameter);
    const OptimizerConfig& optimizer = timeline_.contract.optimizer_of(p);
    for (std::uint64_t e = s.offset; e < s.offset + s.numel; ++e) {
      values.push_back((before[p][e] - after[p][e]) / optimizer.learning_rate);
      const double largest = std::abs(before[p][e]) + std::abs(after[p][e]);
      const double error = in_model.of(std::abs(before[p][e])) + in_model.of(std::abs(after[p][e])) + 2 * in_fp32.of(largest);
      errors.push_back(ref::widened(error / std::abs(optimizer.learning_rate)));
    }
  }
  Shown shown(event, rank, "weights before - weights after", Role::applied_gradient);
  shown.observation().at_end = false;
  shown.hand_over(stretches, values, errors, Dtype::float64, sink);
}

// ---- what was there ---------------------------------------------------------------------------------------------------------------------

void RecordedProducer::show_buffers(std::uint32_t event, std::uint32_t rank, TraceSink& sink) const {
  for (const auto& [name, buffer] : moment(rank, event).buffers) {
    const BufferMeaning meaning = layout_.of(name, rank, event, buffer.values.size());
    Shown shown(event, rank, name, meaning.role);
    if (meaning.scaled) shown.observation().scale = loss_scale(event);
    if (meaning.on_host) shown.observation().space = MemorySpace::host;
    shown.hand_over(meaning.stretches, buffer.values, {}, dtype_of(buffer.dtype), sink);
  }
}

void RecordedProducer::show_weights(std::uint32_t event, std::uint32_t rank, TraceSink& sink) const {
  const auto& weights = moment(rank, event).parameters;
  for (std::size_t p = 0; p < weights.size(); ++p) {
    Shown shown(event, rank, recording_.scenario.parameters[p].name, Role::parameter);
    shown.hand_over({{static_cast<std::int32_t>(p), 0, static_cast<std::uint32_t>(weights[p].size())}}, weights[p], {}, recording_.scenario.model_dtype, sink);
  }
}

// Recordings name call, elements and dtype. One element alone is a norm or a flag, where the model has more.
void RecordedProducer::show_collectives(std::uint32_t event, std::uint32_t rank, TraceSink& sink) const {
  if (!moment(rank, event).collectives) return;
  for (const RecordedCollective& call : *moment(rank, event).collectives) {
    CollectiveRecord record;
    record.rank = rank;
    record.event = event;
    record.numel = call.numel;
    record.dtype = dtype_of(call.dtype);
    record.kind = call.kind.starts_with("reduce_scatter") ? CollectiveKind::reduce_scatter
                  : call.kind.starts_with("all_gather")   ? CollectiveKind::all_gather
                  : call.kind.starts_with("broadcast")    ? CollectiveKind::broadcast
                  : call.kind.starts_with("reduce")       ? CollectiveKind::reduce
                                                          : CollectiveKind::all_reduce;
    const bool reduces = record.kind != CollectiveKind::all_gather && record.kind != CollectiveKind::broadcast;
    record.purpose = !reduces ? Purpose::parameter : call.numel <= 1 && recording_.scenario.numel() > 1 ? Purpose::norm : Purpose::gradient;
    sink.collective(record);
  }
}

}  // namespace gradledger::conform
