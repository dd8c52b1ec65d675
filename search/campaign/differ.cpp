#include "search/campaign/differ.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "ref/describe.h"
#include "ref/dtype_facts.h"
#include "search/campaign/parallel.h"
#include "search/draw/loops.h"
#include "search/shrink/shape.h"
#include "search/shrink/shrink.h"
#include "sim/base/hash.h"
#include "sim/load.h"

namespace gradledger::search {
namespace {

class AppliedSink final : public TraceSink {
 public:
  // steps: events are taken for the steps that they are of.
  AppliedSink(Applied& out, const Timeline* steps) : out_(out), steps_(steps) {}

  void observe(const Observation& o) override {
    if (o.role != Role::applied_gradient) return;
    for (const ObservedPiece& piece : o.pieces) {
      if (piece.parameter < 0) continue;
      stored_.resize(piece.numel);
      ref::read_stored(piece.dtype, piece.data, piece.numel, stored_.data());
      for (std::uint32_t i = 0; i < piece.numel; ++i) {
        std::vector<double>& values = out_.values[{steps_ ? steps_->events[o.event].step : o.event, static_cast<std::uint32_t>(piece.parameter), piece.parameter_offset + i}];
        const double value = stored_[i] / o.scale;
        const auto at = std::lower_bound(values.begin(), values.end(), value);
        if (at == values.end() || *at != value) values.insert(at, value);
      }
    }
  }
  void engine_error(const EngineErrorRecord& r) override { stop(fmt::format("rank {} raises {} at event {}", r.rank, r.type, r.event)); }
  void deadlock(const DeadlockRecord&) override { stop("the ranks deadlock"); }
  void mismatch(const MismatchRecord& r) override { stop("collectives differ in " + r.what); }

 private:
  void stop(std::string how) {
    if (out_.stopped.empty()) out_.stopped = std::move(how);
  }

  Applied& out_;
  const Timeline* steps_;
  std::vector<double> stored_;
};

struct Prepared {
  Scenario scenario;
  std::optional<Timeline> timeline;
  ref::ProbeRange range;
};

std::optional<Prepared> prepare(const Scenario& scenario, const Side& side) {
  Prepared out{scenario, std::nullopt, {}};
  side.apply(out.scenario);
  if (admission_error(out.scenario)) return std::nullopt;
  auto timeline = make_timeline(out.scenario);
  if (!timeline) return std::nullopt;
  out.range = ref::probe_range(out.scenario, *timeline);
  out.timeline = std::move(timeline).value();
  return out;
}

Applied run_side(const Prepared& prepared, const Side& side, std::uint64_t seed, bool by_step) {
  const ref::FingerprintSource fingerprint(*prepared.timeline, prepared.range, seed);
  const ref::PlantedSource source(fingerprint, *prepared.timeline);
  Applied out;
  AppliedSink sink(out, by_step ? &*prepared.timeline : nullptr);
  const auto producer = make_producer(prepared.scenario, *prepared.timeline, {.engines = side.factory, .devices = side.devices});
  RunOptions run;
  run.linear = true;
  run.observe_events = false;
  run.schedule.policy = Schedule::Policy::in_order;  // races are no difference
  producer->run(source, run, sink);
  return out;
}

// Planted values that are not finite are equal to themselves.
bool equal(const std::vector<double>& a, const std::vector<double>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](double x, double y) { return x == y || (std::isnan(x) && std::isnan(y)); });
}

std::optional<Parting> parting_of(const Applied& one, const Applied& other) {
  Parting out;
  if (one.stopped != other.stopped) {
    out.stops = true;
    return out;
  }
  for (const auto& [key, values] : one.values) {
    const auto at = other.values.find(key);
    if (at != other.values.end() && equal(at->second, values)) continue;
    std::tie(out.event, out.parameter, out.element) = key;
    return out;
  }
  for (const auto& [key, values] : other.values)
    if (!one.values.contains(key)) {
      std::tie(out.event, out.parameter, out.element) = key;
      return out;
    }
  return std::nullopt;
}

// What one element has of a contribution.
struct Held {
  double weight = 0;
  bool misplaced = false;
  bool operator==(const Held&) const = default;
};

std::string text_of(const Held& held) { return ref::observed_text(held.weight, held.misplaced); }

// The weights with which contributions got into one element, on the first rank that applies it.
std::map<Contribution, Held> weights_at(const Scenario& scenario, const Side& side, const Parting& at) {
  std::map<Contribution, Held> out;
  const auto prepared = prepare(scenario, side);
  const auto producer = make_producer(prepared->scenario, *prepared->timeline, {.engines = side.factory, .devices = side.devices});
  ref::OracleOptions oracle;
  oracle.full_ledger = true;
  const ref::Verdict verdict = ref::judge(prepared->scenario, *prepared->timeline, *producer, oracle);
  for (const ref::AppliedRow& row : verdict.applied) {
    const bool there = at.by_step ? prepared->timeline->events[row.event].step == at.event : row.event == at.event;
    const bool holds = there && std::any_of(row.row.elements.begin(), row.row.elements.end(),
                                            [&](const ref::ElementRange& e) { return e.parameter == at.parameter && at.element >= e.begin && at.element < e.end; });
    if (!holds) continue;
    // The loop divides its losses where the framework does not: what that leaves of a weight is compared.
    const double divided = at.by_step ? value_of(prepared->timeline->contract.divisor) : 1.0;
    for (std::size_t k = 0; k < row.columns.size(); ++k) out[row.columns[k]] = {row.row.observed[k] * divided, row.row.misplaced_at(k)};
    break;
  }
  return out;
}

std::string explain(const Scenario& scenario, const std::vector<Side>& sides, const Parting& at) {
  if (at.stops) return at.text;
  const Side &one = sides[at.one], &other = sides[at.other];
  const auto a = weights_at(scenario, one, at), b = weights_at(scenario, other, at);
  std::string out;
  for (const auto& [contribution, weight] : a) {
    const auto found = b.find(contribution);
    const Held there = found == b.end() ? Held{} : found->second;
    if (weight == there) continue;
    out += fmt::format("{}micro-batch {} of rank {}, step {}: {} in {}, {} in {}", out.empty() ? "" : "; ", contribution.micro_batch, contribution.rank, contribution.step,
                       text_of(weight), one.name, text_of(there), other.name);
  }
  return at.text + (out.empty() ? "" : ": " + out);
}

bool same_kind(const Comparison& comparison, const Parting& parting) {
  return comparison.parting && comparison.parting->one == parting.one && comparison.parting->other == parting.other && comparison.parting->stops == parting.stops;
}

DifferFound smallest(const Scenario& scenario, const std::vector<Side>& sides, std::uint64_t number, const CampaignOptions& options) {
  const std::uint64_t seed = options.seed;
  const Comparison first = compare_sides(scenario, sides, seed);
  const auto shows = [&](const Scenario& s) {
    try {
      return same_kind(compare_sides(s, sides, seed), *first.parting);
    } catch (const ContractViolation&) {
      return false;
    }
  };
  DifferFound out;
  out.number = number;
  out.scenario = shrink(scenario, shows, {.stop = options.stop}).scenario;
  out.parting = *compare_sides(out.scenario, sides, seed).parting;
  out.shape = shape_of(out.scenario);
  out.explanation = explain(out.scenario, sides, out.parting);
  return out;
}

class DifferCampaign {
 public:
  DifferCampaign(const CampaignOptions& options, const std::vector<Side>& sides, const DifferWatch& watch) : options_(options), sides_(sides), watch_(watch) {}

  DifferState run() {
    constexpr std::uint64_t round_size = 256;
    const std::uint64_t end = options_.first + options_.cases;
    for (std::uint64_t from = options_.first; from < end && !(state_.stopped = options_.stop() || state_.stopped); from += round_size)
      round(from, std::min(end, from + round_size));
    return std::move(state_);
  }

 private:
  struct Case {
    std::uint64_t number = 0;
    Scenario scenario;
    Comparison comparison;
  };

  void round(std::uint64_t from, std::uint64_t to) {
    std::vector<Case> cases;
    for (std::uint64_t number = from; number < to; ++number)
      if (number % options_.shards == options_.shard) cases.emplace_back().number = number;
    const auto compare = [&](std::size_t i) {
      cases[i].scenario = (options_.profile.plain_loops ? draw_loop : draw)(options_.profile, options_.seed, cases[i].number);
      cases[i].comparison = compare_sides(cases[i].scenario, sides_, options_.seed);
    };
    const std::size_t done = in_parallel(cases.size(), options_.jobs, compare, options_.stop);
    state_.stopped = done < cases.size();
    cases.resize(done);
    for (const Case& c : cases) take(c);
    watch_.progress(state_);
  }

  void take(const Case& c) {
    ++state_.cases;
    state_.compared += c.comparison.compared;
    if (!c.comparison.parting) return;
    ++state_.differing;
    const Parting& parting = *c.comparison.parting;
    constexpr std::uint32_t shrunk_of_kind_max = 24;
    if (++shrunk_[{parting.other, parting.stops}] > shrunk_of_kind_max) return;
    DifferFound found = smallest(c.scenario, sides_, c.number, options_);
    const auto same = [&](const DifferFound& f) { return f.shape == found.shape && f.parting.other == found.parting.other && f.parting.stops == found.parting.stops; };
    const auto at = std::find_if(state_.found.begin(), state_.found.end(), same);
    if (at != state_.found.end()) {
      ++at->alike;
      return;
    }
    state_.found.push_back(std::move(found));
    watch_.found(state_.found.back());
  }

  const CampaignOptions& options_;
  const std::vector<Side>& sides_;
  const DifferWatch& watch_;
  DifferState state_;
  std::map<std::pair<std::size_t, bool>, std::uint32_t> shrunk_;
};

}  // namespace

Comparison compare_sides(const Scenario& scenario, const std::vector<Side>& sides, std::uint64_t seed) {
  std::vector<Prepared> prepared;
  for (const Side& side : sides) {
    auto one = prepare(scenario, side);
    if (!one || !one->range.dyadic) return {};
    prepared.push_back(std::move(*one));
  }
  // Scripts of their own number their events differently, and their steps alike. What divides a loss there is the loop or the framework: the same
  // integers arrive in the accumulators, whatever they are multiplied by before.
  const bool by_step = std::any_of(prepared.begin(), prepared.end(), [&](const Prepared& p) { return p.scenario.script != prepared.front().scenario.script; });
  // The same probes on every side: those that the narrowest takes.
  const ref::ProbeRange range =
      std::min_element(prepared.begin(), prepared.end(), [](const Prepared& a, const Prepared& b) { return a.range.value_max < b.range.value_max; })->range;
  for (Prepared& p : prepared) {
    if (!by_step && p.range.unit != range.unit) return {};
    const double unit = p.range.unit;
    p.range = range;
    p.range.unit = unit;
  }
  std::vector<Applied> applied;
  for (std::size_t s = 0; s < sides.size(); ++s) applied.push_back(run_side(prepared[s], sides[s], seed, by_step));
  Comparison out{true, std::nullopt};
  for (std::size_t s = 1; s < sides.size() && !out.parting; ++s) {
    out.parting = parting_of(applied[0], applied[s]);
    if (!out.parting) continue;
    Parting& at = *out.parting;
    at.other = s;
    at.by_step = by_step;
    const auto ended = [](const Applied& a) { return a.stopped.empty() ? std::string("the script ends") : a.stopped; };
    if (at.stops) at.text = fmt::format("{}: {}; {}: {}", sides[0].name, ended(applied[0]), sides[s].name, ended(applied[s]));
    else
      at.text = fmt::format("{} applies other weights to {}[{}] than {} at {}", sides[s].name, scenario.parameters[at.parameter].name, at.element, sides[0].name,
                            by_step ? fmt::format("step {}", at.event) : prepared[0].timeline->describe(at.event));
  }
  return out;
}

DifferState run_differ(const CampaignOptions& options, const std::vector<Side>& sides, const DifferWatch& watch) {
  expects(sides.size() >= 2, "a difference needs two sides");
  return DifferCampaign(options, sides, watch).run();
}

}  // namespace gradledger::search
