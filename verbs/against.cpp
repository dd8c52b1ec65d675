#include "verbs/against.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <tuple>
#include <vector>

#include <fmt/format.h>

#include "ref/dtype_facts.h"
#include "ref/probes.h"
#include "sim/base/hash.h"
#include "sim/frameworks/framework.h"
#include "sim/load.h"
#include "sim/trace/role.h"

namespace gradledger::verbs {
namespace {

// Weights by event, rank and element, as they were shown last in the event.
class Weights final : public TraceSink {
 public:
  using Place = std::tuple<std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t>;  // event, rank, parameter, element

  explicit Weights(const Timeline& timeline) : timeline_(timeline) {}

  void observe(const Observation& o) override {
    if (o.role != Role::parameter || !o.at_end || !timeline_.events[o.event].steps()) return;
    std::vector<double> values;
    for (const ObservedPiece& piece : o.pieces) {
      if (piece.parameter < 0) continue;
      values.resize(piece.numel);
      ref::read_stored(piece.dtype, piece.data, piece.numel, values.data());
      for (std::uint32_t i = 0; i < piece.numel; ++i) at_[{o.event, o.rank, static_cast<std::uint32_t>(piece.parameter), piece.parameter_offset + i}] = values[i];
    }
  }

  void race(const RaceRecord&) override { depends_on_streams_ = true; }
  void unwritten(const UnwrittenRecord&) override { depends_on_streams_ = true; }

  const std::map<Place, double>& at() const { return at_; }
  bool depends_on_streams() const { return depends_on_streams_; }

 private:
  bool depends_on_streams_ = false;
  const Timeline& timeline_;
  std::map<Place, double> at_;
};

bool same(double a, double b) { return std::memcmp(&a, &b, sizeof(a)) == 0 || (a == 0 && b == 0) || (a != a && b != b); }

}  // namespace

std::optional<AgainstModel> against_model(const Loaded& loaded, const Options& options) {
  expects(options.driver != nullptr, "a real framework is held against its model");
  if (!framework_of(loaded.scenario).simulated() || admission_error(loaded.scenario)) return std::nullopt;
  const auto compiled = [](const OptimizerConfig& optimizer) { return optimizer.fused(); };
  if (std::any_of(loaded.timeline.contract.optimizers.begin(), loaded.timeline.contract.optimizers.end(), compiled)) return std::nullopt;
  const GradientKind own = loaded.scenario.gradients.kind, kind = own == GradientKind::probe ? GradientKind::normal : own;
  const auto values = ref::value_source(loaded.scenario, loaded.timeline, kind, hash_keys({options.seed, loaded.scenario.gradients.seed}));
  const ref::PlantedSource source(*values, loaded.timeline);
  RunOptions run;
  run.schedule.seed = options.seed;
  Weights real(loaded.timeline), model(loaded.timeline);
  make_producer(loaded, options)->run(source, run, real);
  Options simulated = options;
  simulated.driver = nullptr;
  make_producer(loaded, simulated)->run(source, run, model);
  if (model.depends_on_streams()) return std::nullopt;  // of which a CPU has one
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
    out.difference = fmt::format("after {}, rank {}: {}[{}] is {} there and {} in the model", loaded.timeline.describe(event), rank, loaded.scenario.parameters[parameter].name,
                                 element, value, found->second);
    return out;
  }
  return out;
}

}  // namespace gradledger::verbs
