#include "ref/steps.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "ref/describe.h"
#include "ref/dtype_facts.h"
#include "ref/loss_scale.h"
#include "ref/overflow.h"

namespace gradledger::ref {
namespace {

void add_element(std::vector<ElementRange>& ranges, std::uint32_t parameter, std::uint64_t element) {
  if (!ranges.empty() && ranges.back().parameter == parameter && ranges.back().end == element) ++ranges.back().end;
  else ranges.push_back({parameter, element, element + 1});
}

}  // namespace

StepJudge::StepJudge(const Workload& workload, const Timeline& timeline, const GradientSource& source, Model& model, const MeantModels* meant)
    : workload_(workload), timeline_(timeline), source_(source), model_(model), meant_(meant && !meant->empty() ? meant : nullptr) {}

bool StepJudge::RankStep::skips() const { return reported(StepFact::skipped).value_or(0) != 0; }

// The first record of an event brings its reference.
StepJudge::Step& StepJudge::step(std::uint32_t event) {
  const auto [at, fresh] = steps_.try_emplace(event);
  if (fresh) {
    const Field& gradient = model_.reduced(event, false);
    at->second.finite = std::all_of(gradient.value.begin(), gradient.value.end(), [](double x) { return std::isfinite(x); });
    if (at->second.finite) at->second.norm = model_.norm(gradient);
  }
  return at->second;
}

void StepJudge::observe(const Observation& o) {
  if (o.role != Role::applied_gradient) return;
  RankStep& mine = step(o.event).ranks[o.rank];
  mine.applied = true;
  const Field& gradient = model_.reduced(o.event, o.at_end);
  std::vector<double> stored;
  for (const ObservedPiece& piece : o.pieces) {
    if (piece.parameter < 0) continue;
    stored.resize(piece.numel);
    read_stored(piece.dtype, piece.data, piece.numel, stored.data());
    const auto p = static_cast<std::uint32_t>(piece.parameter);
    for (std::uint64_t i = 0; i < piece.numel; ++i) {
      if (std::isfinite(stored[i])) continue;
      add_element(mine.not_finite, p, piece.parameter_offset + i);
      if (std::isfinite(gradient.value[model_.offset(p) + piece.parameter_offset + i])) add_element(mine.spread, p, piece.parameter_offset + i);
    }
  }
}

void StepJudge::step_fact(const StepRecord& r) {
  if (!timeline_.events[r.event].steps()) return;
  Said& said = said_[{r.event, r.rank}];
  said.facts[static_cast<std::size_t>(r.fact)] = true;
  if (r.fact == StepFact::updated) said.updated = r.value != 0;
  else step(r.event).ranks[r.rank].facts[static_cast<std::size_t>(r.fact)] = r.value;
  if (!meant_ || !timeline_.events[r.event].updates() || (r.fact != StepFact::gradient_norm && r.fact != StepFact::clipping_norm)) return;
  const Bounded& documented = step(r.event).norm;
  if (std::abs(r.value - documented.value) <= norm_bound(documented)) return;
  Model& meant = meant_->of(r.rank);
  step(r.event).ranks[r.rank].meant_norm = meant.norm(meant.reduced(r.event, false));
}

void StepJudge::event_done(std::uint32_t rank, std::uint32_t event) {
  if (timeline_.events[event].steps()) said_[{event, rank}].ended = true;
  const auto known = steps_.find(event);
  if (known != steps_.end()) known->second.ranks[rank].done = true;
}

void StepJudge::engine_error(const EngineErrorRecord& r) {
  const auto known = steps_.find(r.event);
  if (known != steps_.end()) known->second.ranks[r.rank].raised = true;
}

void StepJudge::collective(const CollectiveRecord& r) {
  if (r.purpose == Purpose::norm && timeline_.events[r.event].steps()) in_norm_.insert({r.event, r.rank});
}

// Who skips does so before any norm is asked for: a rank that asks for one, and never comes out of the step to report it, goes on.
void StepJudge::add_those_in_norms(std::uint32_t event, Step& step) const {
  for (const auto& [rank, mine] : step.ranks)
    if (mine.skips() && in_norm_.contains({event, rank})) return;
  for (auto at = in_norm_.lower_bound({event, 0}); at != in_norm_.end() && at->first == event; ++at) {
    const auto said = said_.find(*at);
    if (said == said_.end() || !said->second.ended) step.ranks.try_emplace(at->second);
  }
}

void StepJudge::add(FindingClass finding, std::uint32_t event, std::uint32_t rank, std::string what, std::optional<Quantity> quantity) {
  out_.push_back({finding, event, rank, std::move(quantity), {}, std::move(what)});
}

// ---- what is due ------------------------------------------------------------------------------------------------------------------------

Skip StepJudge::due(std::uint32_t event, const Step& step, double scale) const {
  if (!step.finite) return timeline_.contract.skips_nonfinite ? Skip::must : Skip::open;
  const bool accused = std::any_of(step.ranks.begin(), step.ranks.end(), [](const auto& r) { return r.second.skips() || !r.second.not_finite.empty(); });
  if (!accused) return Skip::must_not;
  return in_range(timeline_.events[event].step, scale) ? Skip::must_not : Skip::open;
}

// Whether no order of summation can leave any format on the way: the largest terms of all contributions together fit.
bool StepJudge::in_range(std::uint32_t window, double scale) const {
  double largest = facts_of(workload_.model_dtype).largest(), sum = 0;
  for (Dtype dtype : {timeline_.contract.accumulation, timeline_.contract.wire}) largest = std::min(largest, facts_of(dtype).largest());
  std::vector<double> gradient, error;
  for (const std::uint32_t b : timeline_.backwards_of(window, Layer::meant)) {
    for (std::uint32_t r = 0; r < workload_.world_size; ++r) {
      double most = 0;
      for (std::uint32_t p = 0; p < workload_.parameters.size(); ++p) {
        if (!timeline_.used(workload_, b, r, p)) continue;
        gradient.resize(workload_.parameters[p].numel);
        source_.gradient(b, r, p, 0, gradient);
        const std::vector<double>& of_loop = timeline_.backwards[b].loss_factor;
        double factor = of_loop.empty() ? 1 : std::max(1.0, of_loop[r]);  // the largest on the way
        for (const std::uint32_t set : timeline_.gradients_set) factor = std::max(factor, timeline_.factor(b, r, p, set));
        error.resize(gradient.size());
        source_.gradient_error(b, r, p, 0, error);
        for (std::size_t i = 0; i < gradient.size(); ++i) most = std::max(most, (std::abs(gradient[i]) + error[i]) * factor);
      }
      sum += most;
    }
  }
  return sum * scale * (1 + facts_of(workload_.model_dtype).unit_roundoff()) < largest;
}

// ---- what was done ----------------------------------------------------------------------------------------------------------------------

std::vector<StepMismatch> StepJudge::mismatches() {
  LossScaleModel scale(timeline_.contract.loss_scale);
  bool scale_known = true;
  for (auto& [event, step] : steps_) {
    const auto any = [&](auto&& is) { return std::any_of(step.ranks.begin(), step.ranks.end(), [&](const auto& r) { return is(r.second); }); };
    const bool said = any([](const RankStep& r) { return r.reported(StepFact::skipped).has_value(); });
    const Skip skip = due(event, step, scale.scale());
    // A step that hangs may have updated before it could say so.
    const bool has_norm = step.finite && !timeline_.touched_at(event, false);
    if (!said && !(skip == Skip::must && any([](const RankStep& r) { return r.applied && !r.done; }))) {
      if (has_norm) judge_norms(event, step);  // a step that looks for no overflow reports its norm all the same
      continue;
    }
    if (skip == Skip::must) add_those_in_norms(event, step);
    judge_skips(event, step, skip);
    judge_finiteness(event, step);
    const bool skipped = step.ranks.begin()->second.skips();
    const bool agreed = std::all_of(step.ranks.begin(), step.ranks.end(), [&](const auto& r) { return r.second.skips() == skipped; });
    scale_known = scale_known && (skip != Skip::open || agreed);
    scale.step(skip == Skip::open ? skipped : skip == Skip::must);
    for (const auto& [rank, mine] : step.ranks) {
      const auto reported = mine.reported(StepFact::loss_scale);
      if (!scale_known || !reported || *reported == scale.scale()) continue;
      add(FindingClass::wrong_scale, event, rank, fmt::format("the loss scale is {} from here on, documented is {}", *reported, scale.scale()),
          Quantity{"loss_scale", *reported, scale.scale(), 0});
    }
    if (has_norm) judge_norms(event, step);
    if (skip == Skip::must) decided_.insert(event);
  }
  list_missing();
  return std::move(out_);
}

std::set<std::uint32_t> StepJudge::without_update() const {
  std::set<std::uint32_t> out;
  for (const auto& [at, said] : said_)
    if (said.facts[static_cast<std::size_t>(StepFact::updated)] && !said.updated) out.insert(at.first);
  return out;
}

std::set<std::uint32_t> StepJudge::skipped() const {
  std::set<std::uint32_t> out;
  for (const auto& [event, step] : steps_)
    if (!step.ranks.empty() && std::all_of(step.ranks.begin(), step.ranks.end(), [](const auto& r) { return r.second.skips(); })) out.insert(event);
  return out;
}

// Of steps that must update, what each rank that came through them left unsaid and the contract asks for.
void StepJudge::list_missing() {
  const Contract& contract = timeline_.contract;
  for (const auto& [at, said] : said_) {
    const auto [event, rank] = at;
    if (!timeline_.events[event].closes() || !said.ended) continue;
    const auto ask = [&](StepFact fact, bool needed) {
      if (needed && !said.facts[static_cast<std::size_t>(fact)]) missing_.push_back({event, rank, fact});
    };
    ask(StepFact::skipped, contract.skips_nonfinite);
    ask(StepFact::updated, true);
    ask(StepFact::loss_scale, contract.loss_scale.dynamic);
    ask(StepFact::clipping_norm, contract.clip.max_norm > 0 && said.updated);
  }
}

// A rank whose shard has no element shows no gradient that it applied.
bool StepJudge::says_updated(std::uint32_t event, std::uint32_t rank) const {
  const auto said = said_.find({event, rank});
  return said != said_.end() && said->second.updated;
}

void StepJudge::judge_skips(std::uint32_t event, const Step& step, Skip due) {
  std::vector<std::uint32_t> skipping, stepping;
  for (const auto& [rank, mine] : step.ranks) {
    if (mine.skips()) skipping.push_back(rank);
    else if (mine.applied) stepping.push_back(rank);
  }
  const bool poisoned = std::any_of(step.ranks.begin(), step.ranks.end(), [](const auto& r) { return !r.second.not_finite.empty(); });
  for (const auto& [rank, mine] : step.ranks) {
    if (due == Skip::must && mine.applied && !mine.not_finite.empty()) {
      add(FindingClass::nonfinite_missed, event, rank,
          fmt::format("{} of the applied gradient are not finite; the configuration checks for overflow, and every rank must skip", elements_text(workload_, mine.not_finite)));
      out_.back().elements = mine.not_finite;
    } else if (due == Skip::must && !mine.skips() && (mine.applied || (!mine.done && !skipping.empty())) && !mine.raised && (!poisoned || !skipping.empty())) {
      add(FindingClass::wrong_skip, event, rank,
          fmt::format("goes on to update, though the window holds a gradient that is not finite, and every rank must skip{}{}", skipping.empty() ? "" : "; skipped by ",
                      skipping.empty() ? "" : numbered("rank", skipping)));
    } else if (due == Skip::must_not && mine.skips()) {
      add(FindingClass::wrong_skip, event, rank, "skips, though every gradient of the window is finite and in the range of every format on its way");
    } else if (due == Skip::must_not && !mine.skips() && !mine.applied && !says_updated(event, rank) && mine.done && !mine.raised && mine.reported(StepFact::skipped) &&
               timeline_.events[event].closes()) {
      add(FindingClass::wrong_skip, event, rank, "returns without an update, and reports no overflow");
    } else if (due == Skip::open && mine.skips() && !stepping.empty()) {
      add(FindingClass::wrong_skip, event, rank, fmt::format("skips, and {} not", numbered("rank", stepping) + (stepping.size() == 1 ? " does" : " do")));
    }
  }
}

// Where nothing is promised, what is not finite stays in its own elements.
void StepJudge::judge_finiteness(std::uint32_t event, const Step& step) {
  const bool promised = timeline_.contract.skips_nonfinite;
  for (const auto& [rank, mine] : step.ranks) {
    if (mine.spread.empty() || (promised && !step.finite)) continue;
    if (step.finite && !in_range(timeline_.events[event].step, mine.reported(StepFact::loss_scale).value_or(1))) continue;
    add(FindingClass::nonfinite_missed, event, rank,
        fmt::format("{} of the applied gradient are not finite, though every contribution to them is", elements_text(workload_, mine.spread)));
    out_.back().elements = mine.spread;
  }
}

// The scale is taken out in fp32: a quotient, its argument, and the square root. The norms of several groups or stages are rounded, averaged over
// their ranks (a product and a sum), squared and rounded, and the root of their sum is taken.
double StepJudge::norm_bound(const Bounded& norm) const {
  const double of_groups = timeline_.contract.clip.norm_in_parts ? 5.0 + workload_.world_size : 0.0;
  return widened(norm.error + (4 + of_groups) * facts_of(Dtype::float32).unit_roundoff() * norm.magnitude());
}

void StepJudge::judge_norms(std::uint32_t event, const Step& step) {
  const double bound = norm_bound(step.norm);
  for (const auto& [rank, mine] : step.ranks) {
    if (mine.skips()) continue;
    for (const auto& [fact, verb] : {std::pair{StepFact::gradient_norm, "reports"}, std::pair{StepFact::clipping_norm, "clips by"}}) {
      const auto norm = mine.reported(fact);
      const bool told = fact != StepFact::gradient_norm || mine.done || !(mine.raised || hangs_);  // a step that raises or hangs reports to nobody
      if (!norm || !told) continue;
      norms_.compared(event, rank, fact, step.norm.value, bound);
      if (!std::isfinite(bound) || std::abs(*norm - step.norm.value) <= bound) continue;
      if (mine.meant_norm && std::abs(*norm - mine.meant_norm->value) <= norm_bound(*mine.meant_norm)) continue;
      add(FindingClass::wrong_norm, event, rank,
          fmt::format("{} a gradient norm of {:.9g}, due is {:.9g}, and rounding explains at most {:.3g} of the difference", verb, *norm, step.norm.value, bound),
          Quantity{name_of(fact), *norm, step.norm.value, bound});
    }
  }
}

}  // namespace gradledger::ref
