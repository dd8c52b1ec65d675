#include "verbs/against.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <tuple>
#include <vector>

#include <fmt/format.h>

#include "ref/dtype_facts.h"
#include "ref/probes.h"
#include "sim/base/hash.h"
#include "sim/engine/clipping.h"
#include "sim/frameworks/framework.h"
#include "sim/load.h"
#include "sim/trace/role.h"

namespace gradledger::verbs {
namespace {

bool same(double a, double b) { return std::memcmp(&a, &b, sizeof(a)) == 0 || (a == 0 && b == 0) || (a != a && b != b); }

// What two sums of the squares of n elements, in fp32 and in any order, leave between their roots: each is off by at most (n + 1) u of itself, its root by
// half of that, and each root is rounded, and so is what a loop makes of it in true units.
double rounding_of_norms(std::uint64_t n, double norm) {
  const double u = ref::facts_of(Dtype::float32).unit_roundoff(), of_sum = (static_cast<double>(n) + 1) * u;
  return of_sum < 1 ? (of_sum / (1 - of_sum) + 4 * u) * norm : HUGE_VAL;
}

// Where a loop clips by it, its own limit and clip_grad_norm_'s guard; else those of the framework's configuration. No limit: nothing is clipped.
ClipPolicy clipped_by(const Timeline& timeline, std::uint32_t event) {
  const auto* clip = timeline.events[event].as<events::ClipGradients>();
  return clip ? ClipPolicy{clip->max_norm, clip_guard} : timeline.contract.clip;
}

// Whether an event up to `last` clips by a norm which differs in its rounding alone: a framework adds up in an order of its own, and gradients are
// other behind it, in both rightly.
bool clips_by_another_norm(const Scenario& scenario, const Timeline& timeline, const ShownWeights& real, const ShownWeights& model, std::uint32_t last) {
  std::uint64_t numel = 0;
  for (const Parameter& parameter : scenario.parameters) numel += parameter.numel;
  for (const auto& [norm, value] : real.norms()) {
    const auto found = model.norms().find(norm);
    if (std::get<0>(norm) > last) break;
    if (found == model.norms().end() || same(value, found->second)) continue;
    const double larger = std::max(std::abs(value), std::abs(found->second)), rounding = rounding_of_norms(numel, larger);
    const ClipPolicy clip = clipped_by(timeline, std::get<0>(norm));
    if (clip.max_norm > 0 && larger + rounding + clip.guard >= clip.max_norm && std::abs(value - found->second) <= rounding) return true;
  }
  return false;
}

// Whether a step up to `last` updates the parameter by an approximation that the contract allows, in whose place the model has the average. Where a
// norm clips, every parameter depends on each.
bool approximated(const Timeline& timeline, std::uint32_t parameter, std::uint32_t last) {
  if (!timeline.contract.approximation) return false;
  bool clips = false;
  for (std::uint32_t event = 0; event <= last; ++event) {
    clips = clips || clipped_by(timeline, event).max_norm > 0;
    if (!timeline.events[event].steps()) continue;
    for (std::uint32_t p = 0; p < timeline.contract.approximation->values.size(); ++p)
      if ((clips || p == parameter) && timeline.approximates_values(p, event, false)) return true;
  }
  return false;
}

}  // namespace

void ShownWeights::observe(const Observation& o) {
  if (o.role != Role::parameter || !o.at_end || !timeline_.events[o.event].steps()) return;
  std::vector<double> values;
  for (const ObservedPiece& piece : o.pieces) {
    if (piece.parameter < 0) continue;
    values.resize(piece.numel);
    ref::read_stored(piece.dtype, piece.data, piece.numel, values.data());
    for (std::uint32_t i = 0; i < piece.numel; ++i) at_[{o.event, o.rank, static_cast<std::uint32_t>(piece.parameter), piece.parameter_offset + i}] = values[i];
  }
}

void ShownWeights::step_fact(const StepRecord& fact) {
  if (fact.fact >= StepFact::gradient_norm) norms_[{fact.event, fact.rank, fact.fact}] = fact.value;
}

AgainstModel compare_weights(const Scenario& scenario, const Timeline& timeline, const ShownWeights& real, const ShownWeights& model) {
  AgainstModel out;
  std::uint32_t last = never;
  for (const auto& [place, value] : real.at()) {
    const auto found = model.at().find(place);
    if (found == model.at().end()) continue;
    const auto [event, rank, parameter, element] = place;
    ++out.elements;
    out.events += event != last;
    last = event;
    if (same(value, found->second)) continue;
    if (approximated(timeline, parameter, event)) {
      --out.elements;
      out.up_to = "an approximation";
      continue;
    }
    if (event >= model.first_race()) {  // which of the two was first there, nothing says
      --out.elements;
      out.up_to = "a race";
      return out;
    }
    if (clips_by_another_norm(scenario, timeline, real, model, event)) {
      --out.elements;
      out.up_to = "the rounding of a norm";
      return out;
    }
    out.difference = fmt::format("after {}, rank {}: {}[{}] is {} there and {} in the model", timeline.describe(event), rank, scenario.parameters[parameter].name, element, value,
                                 found->second);
    return out;
  }
  return out;
}

std::optional<AgainstModel> against_model(const Loaded& loaded, const Options& options) {
  expects(options.driver != nullptr, "a real framework is held against its model");
  if (!framework_of(loaded.scenario).simulated() || admission_error(loaded.scenario)) return std::nullopt;
  // The formulas of a compiled kernel, and what Muon makes of its momentum, are not the model's.
  const auto compiled = [](const OptimizerConfig& optimizer) { return optimizer.fused() || optimizer.type == OptimizerType::muon; };
  if (std::any_of(loaded.timeline.contract.optimizers.begin(), loaded.timeline.contract.optimizers.end(), compiled)) return std::nullopt;
  const GradientKind own = loaded.scenario.gradients.kind, kind = own == GradientKind::probe ? GradientKind::normal : own;
  const auto values = ref::value_source(loaded.scenario, loaded.timeline, kind, hash_keys({options.seed, loaded.scenario.gradients.seed}));
  const ref::PlantedSource source(*values, loaded.timeline);
  RunOptions run;
  run.schedule.seed = options.seed;
  ShownWeights real(loaded.timeline), model(loaded.timeline);
  RunOptions unseen = run;
  unseen.observe_events = false;  // to read a buffer is to wait for it, so that a race would not show
  make_producer(loaded, options)->run(source, unseen, real);
  Options simulated = options;
  simulated.driver = nullptr;
  run.check_streams = true;
  make_producer(loaded, simulated)->run(source, run, model);
  if (model.depends_on_streams()) return std::nullopt;  // of which a CPU has one
  return compare_weights(loaded.scenario, loaded.timeline, real, model);
}

}  // namespace gradledger::verbs
