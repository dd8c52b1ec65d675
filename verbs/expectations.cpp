#include "verbs/expectations.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include <fmt/format.h>

#include "ref/describe.h"
#include "ref/dtype_facts.h"
#include "ref/model.h"
#include "ref/probes.h"
#include "report/words.h"
#include "sim/base/files.h"
#include "sim/base/hash.h"
#include "sim/scenario/json_reader.h"

namespace gradledger::verbs {
namespace {

using ref::Finding;
using report::Problem;

// Weights are quotients of small integers in fp64: equal up to a few roundings of it.
bool same_weight(double a, double b) { return std::abs(a - b) <= 8 * std::numeric_limits<double>::epsilon() * std::max(std::abs(a), std::abs(b)); }

class Matcher {
 public:
  Matcher(const Loaded& loaded, const ref::Verdict& verdict) : loaded_(loaded), verdict_(verdict) {}

  std::vector<Problem> run() {
    findings();
    collectives();
    allocations();
    return std::move(out_);
  }

 private:
  void add(const std::string& pointer, std::string text) { out_.emplace_back(std::move(text), report::unmet_expectation, pointer); }

  void findings() {
    const std::vector<ExpectedFinding>& expected = loaded_.scenario.expect.findings;
    std::vector<std::set<Contribution>> named(expected.size());
    std::vector<bool> met(expected.size(), false), near(expected.size(), false);
    std::set<std::string> surplus;
    for (const Finding& f : verdict_.findings) {
      bool matched = false;
      std::string why;
      for (std::size_t i = 0; i < expected.size(); ++i) {
        if (expected[i].finding != name_of(f.finding)) continue;
        const std::string reason = misfit(expected[i], f);
        near[i] = true;
        if (!reason.empty()) {
          why = reason;
          continue;
        }
        matched = met[i] = true;
        for (const ref::Miscounted& m : f.contributions) named[i].insert(m.contribution);
      }
      if (matched) continue;
      const std::string what = why.empty() ? "not expected: " + f.sentence : fmt::format("{} in step {}, rank {}: {}", name_of(f.finding), f.step, f.rank, why);
      if (surplus.insert(std::string(name_of(f.finding)) + why).second) out_.push_back(problem_of(loaded_, f, what));
    }
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const std::string here = "/expect/findings/" + std::to_string(i);
      if (met[i]) unnamed(expected[i], here, named[i]);
      else if (!near[i])
        add(here, fmt::format("expected and not reported: {}{}", expected[i].finding, expected[i].contributions ? " of " + expected[i].contributions->text() : ""));
    }
  }

  // A condition asks for its contributions in every window that a step completed, not just in one.
  void unnamed(const ExpectedFinding& expected, const std::string& here, const std::set<Contribution>& named) {
    if (!expected.contributions) return;
    const Timeline& timeline = loaded_.timeline;
    const bool stale = expected.finding == name_of(ref::FindingClass::stale_gradient);
    const std::uint32_t completed = timeline.steps - (timeline.open_window ? 1 : 0);
    for (std::uint32_t b = 0; b < timeline.backwards.size(); ++b) {
      const std::uint32_t step = timeline.backwards[b].step;
      if (step + (stale ? 1 : 0) >= completed) continue;  // stale ones show in a later window
      for (std::uint32_t r = 0; r < timeline.world_size; ++r) {
        if (timeline.backwards[b].micro_batch[r] == no_contribution) continue;
        const Contribution c = timeline.contribution(b, r);
        if (expected.contributions->holds(c, timeline.micro_batches[step][r]) && !named.contains(c))
          return add(here, fmt::format("expected and not reported: {} of micro-batch {} of rank {} in step {}", expected.finding, c.micro_batch, c.rank, c.step));
      }
    }
  }

  std::string misfit(const ExpectedFinding& expected, const Finding& f) const {
    if (expected.contributions) {
      const std::string difference = contribution_difference(*expected.contributions, f);
      if (!difference.empty()) return difference;
    }
    for (const ref::Miscounted& m : f.contributions) {
      const std::optional<double>& due = m.contribution.rank == f.rank ? expected.own : expected.peer;
      if (due && !same_weight(*due, m.observed))
        return fmt::format("micro-batch {} of rank {} weighs {}, expected {}", m.contribution.micro_batch, m.contribution.rank, ref::weight_text(m.observed),
                           ref::weight_text(*due));
    }
    if (expected.lost_weight && !same_weight(*expected.lost_weight, f.lost_weight))
      return fmt::format("{} of the window's weight is missing, expected {}", ref::weight_text(f.lost_weight), ref::weight_text(*expected.lost_weight));
    return "";
  }

  // The miscounted contributions must be those of the window (stale ones: of earlier windows) for which the condition holds.
  std::string contribution_difference(const Predicate& condition, const Finding& f) const {
    std::set<Contribution> observed;
    for (const ref::Miscounted& m : f.contributions) observed.insert(m.contribution);
    const bool stale = f.finding == ref::FindingClass::stale_gradient;
    const Timeline& timeline = loaded_.timeline;
    for (std::uint32_t b = 0; b < timeline.backwards.size(); ++b) {
      const std::uint32_t step = timeline.backwards[b].step;
      if (stale ? step >= f.step : step != f.step) continue;
      for (std::uint32_t r = 0; r < timeline.world_size; ++r) {
        if (timeline.backwards[b].micro_batch[r] == no_contribution) continue;
        const Contribution c = timeline.contribution(b, r);
        const bool due = condition.holds(c, timeline.micro_batches[step][r]);
        if (due != observed.contains(c))
          return fmt::format("micro-batch {} of rank {} in step {} is {}miscounted, expected it {}", c.micro_batch, c.rank, c.step, due ? "not " : "", due ? "to be" : "not to be");
      }
    }
    return "";
  }

  void collectives() {
    for (const auto& [purpose, expected] : loaded_.scenario.expect.collectives) {
      const std::string here = "/expect/collectives/" + pointer_token(purpose);
      const auto counted = verdict_.facts.collectives.find(purpose);
      for (std::uint32_t r = 0; r < loaded_.scenario.world_size; ++r) {
        for (std::uint32_t step = 0; step < loaded_.timeline.steps; ++step) {
          if (step + 1 == loaded_.timeline.steps && loaded_.timeline.open_window) continue;
          const std::uint32_t count = counted == verdict_.facts.collectives.end() || counted->second[r].empty() ? 0 : counted->second[r][step];
          if (expected.per_step && count != *expected.per_step)
            return add(here, fmt::format("rank {} issues {} {} collectives in step {}, expected {}", r, count, purpose, step, *expected.per_step));
          if (expected.at_most_per_step && count > *expected.at_most_per_step)
            return add(here, fmt::format("rank {} issues {} {} collectives in step {}, expected at most {}", r, count, purpose, step, *expected.at_most_per_step));
        }
      }
    }
  }

  void allocations() {
    const std::vector<std::string>& names = loaded_.scenario.expect.not_allocated;
    for (std::size_t i = 0; i < names.size(); ++i)
      if (std::binary_search(verdict_.facts.allocated.begin(), verdict_.facts.allocated.end(), names[i]))
        add("/expect/not_allocated/" + std::to_string(i), fmt::format("{} is allocated, expected it not to be", names[i]));
  }

  const Loaded& loaded_;
  const ref::Verdict& verdict_;
  std::vector<Problem> out_;
};

// What each step applied, and how far rounding may have taken it from the mean over the window's samples.
class AppliedValues final : public TraceSink {
 public:
  AppliedValues(const Loaded& loaded, const GradientSource& source)
      : loaded_(loaded), source_(source), model_(loaded.scenario, loaded.timeline, source, ref::Model::Mode::bounded), steps_(loaded.timeline.steps) {}

  struct Step {
    std::vector<double> values, bounds;
  };
  const std::vector<Step>& steps() const { return steps_; }

  void observe(const Observation& o) override {
    if (o.role != Role::applied_gradient) return;
    const std::uint32_t number = loaded_.timeline.events[o.event].step;
    Step& step = steps_[number];
    if (step.values.empty()) {
      step.values.assign(model_.numel(), std::nan(""));
      step.bounds = input_rounding(number);
    }
    const ref::Field& field = model_.reduced(o.event, false);
    const double fp32 = ref::facts_of(Dtype::float32).unit_roundoff();
    std::vector<double> stored;
    for (const ObservedPiece& piece : o.pieces) {
      if (piece.parameter < 0) continue;
      stored.resize(piece.numel);
      ref::read_stored(piece.dtype, piece.data, piece.numel, stored.data());
      const std::size_t base = model_.offset(static_cast<std::uint32_t>(piece.parameter)) + piece.parameter_offset;
      for (std::uint32_t i = 0; i < piece.numel; ++i) {
        if (std::isnan(step.values[base + i])) step.bounds[base + i] += field.error[base + i] + 3 * fp32 * std::abs(field.value[base + i]);
        step.values[base + i] = stored[i] / o.scale;
      }
    }
  }

 private:
  // A micro-batch's gradient is the mean of its samples, rounded to the model dtype: u for that, and fp64's own for the division.
  std::vector<double> input_rounding(std::uint32_t step) const {
    std::vector<double> out(model_.numel(), 0.0);
    const Scenario& scenario = loaded_.scenario;
    if (scenario.gradients.samples_per_micro_batch == 1 || scenario.gradients.mlp) return out;  // a network's is not rounded before it is deposited
    const double u = ref::facts_of(scenario.model_dtype).unit_roundoff() + ref::facts_of(Dtype::float64).unit_roundoff();
    std::vector<double> gradient;
    for (std::uint32_t b = 0; b < loaded_.timeline.backwards.size(); ++b) {
      if (loaded_.timeline.backwards[b].step != step) continue;
      for (std::uint32_t r = 0; r < scenario.world_size; ++r) {
        if (loaded_.timeline.backwards[b].micro_batch[r] == no_contribution) continue;
        for (std::uint32_t p = 0; p < scenario.parameters.size(); ++p) {
          if (loaded_.timeline.contract.contributor(r, p) != r) continue;
          const double each = loaded_.timeline.averaged_weight_of(p, b, r, r, Layer::documented) * u / (1 - u);
          gradient.resize(scenario.parameters[p].numel);
          source_.gradient(b, r, p, 0, gradient);
          for (std::size_t i = 0; i < gradient.size(); ++i) out[model_.offset(p) + i] += each * std::abs(gradient[i]);
        }
      }
    }
    return out;
  }

  const Loaded& loaded_;
  const GradientSource& source_;
  ref::Model model_;
  std::vector<Step> steps_;
};

std::vector<AppliedValues::Step> applied_by(const Loaded& loaded, const Options& options) {
  const GradientKind kind = loaded.scenario.gradients.kind == GradientKind::probe ? GradientKind::normal : loaded.scenario.gradients.kind;
  const auto source = ref::value_source(loaded.scenario, loaded.timeline, kind, hash_keys({options.seed, loaded.scenario.gradients.seed}));
  AppliedValues sink(loaded, *source);
  const auto producer = make_producer(loaded, options);
  RunOptions run;
  run.schedule.seed = options.seed;
  run.linear = true;  // clipping would hide a difference of scale
  producer->run(*source, run, sink);
  return sink.steps();
}

}  // namespace

Problem problem_of(const Loaded& loaded, const Finding& finding, std::string text) {
  const Timeline& timeline = loaded.timeline;
  return {std::move(text), std::string(name_of(finding.finding)), timeline.pointers[timeline.events[finding.event].item], report::buffer_family(finding.buffer)};
}

void locate(const Loaded& loaded, std::vector<Problem>& problems) {
  std::vector<std::string> pointers;
  for (const Problem& problem : problems)
    if (!problem.pointer.empty()) pointers.push_back(problem.pointer);
  const auto text = pointers.empty() ? Result<std::string>("") : read_file(loaded.path);
  if (!text) return;
  const std::vector<Position> places = positions_of(*text, pointers);
  std::size_t next = 0;
  for (Problem& problem : problems)
    if (!problem.pointer.empty()) problem.at = places[next++];
}

std::vector<Problem> unmet(const Loaded& loaded, const ref::Verdict& verdict) { return Matcher(loaded, verdict).run(); }

Result<bool> applied_agree(const Loaded& one, const Loaded& other, const Options& options) {
  const std::string where = one.place("/expect/comparison/with");
  const auto sizes = [](const Scenario& s) {
    std::vector<std::uint64_t> out;
    for (const Parameter& p : s.parameters) out.push_back(p.numel);
    return out;
  };
  if (sizes(one.scenario) != sizes(other.scenario) || one.scenario.world_size != other.scenario.world_size)
    return InputError{where, "names a scenario with another world or other parameters; expected the same"};
  const Gradients &mine = one.scenario.gradients, &theirs = other.scenario.gradients;
  if (mine.kind != theirs.kind || mine.seed != theirs.seed)
    return InputError{where, "names a scenario with gradients of another kind or seed; expected the same, or there is nothing to compare"};
  const auto samples = [](const Loaded& l) { return ref::contributions_max(l.timeline) * l.scenario.gradients.samples_per_micro_batch; };
  if (samples(one) != samples(other))
    return InputError{where, fmt::format("names a scenario with up to {} samples a window, this one has up to {}; expected the same", samples(other), samples(one))};
  const auto a = applied_by(one, options), b = applied_by(other, options);
  std::uint64_t compared = 0;
  bool agree = true;
  for (std::size_t step = 0; step < std::min(a.size(), b.size()); ++step) {
    for (std::size_t i = 0; i < std::min(a[step].values.size(), b[step].values.size()); ++i) {
      ++compared;
      const double difference = std::abs(a[step].values[i] - b[step].values[i]);
      if (!(difference <= a[step].bounds[i] + b[step].bounds[i])) agree = false;
    }
  }
  if (compared == 0) return InputError{where, "leaves nothing to compare: no step applies a gradient in both"};
  return agree;
}

}  // namespace gradledger::verbs
