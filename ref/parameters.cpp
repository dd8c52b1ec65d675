#include "ref/parameters.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "ref/dtype_facts.h"

namespace gradledger::ref {

ParameterJudge::ParameterJudge(const Workload& workload, const Contract& contract, const GradientSource& source)
    : workload_(workload), contract_(contract), source_(source), ranks_(workload.world_size) {
  const DtypeFacts fp32 = facts_of(Dtype::float32), model = facts_of(workload.model_dtype);
  fp32_ = {fp32.unit_roundoff(), fp32.tiny()};
  model_ = {model.unit_roundoff(), model.tiny()};
  for (const GradientShare& share : contract.shares) {
    std::vector<std::uint32_t> met(share.first.size());
    std::vector<std::uint32_t>& places = places_.emplace_back();
    for (const std::uint32_t first : share.first) places.push_back(met[first]++);
  }
}

// Of a format that holds values times `scale`.
Rounding ParameterJudge::rounding_of(Dtype format, double scale) {
  const DtypeFacts facts = facts_of(format);
  return {facts.unit_roundoff(), facts.tiny() / std::min(scale, 1.0)};
}

void ParameterJudge::step_fact(const StepRecord& r) {
  const bool kept = r.fact == StepFact::skipped ? r.value != 0 : r.fact == StepFact::updated && r.value == 0;
  if (kept) ranks_[r.rank].kept_at = r.event;
}

// Before it comes to what others stepped, as a gather of weights would: it has its own of before. Snapshots may come first.
void ParameterJudge::engine_error(const EngineErrorRecord& r) {
  RankState& own = ranks_[r.rank];
  own.ended = never;
  own.raised_at = r.event;
  if (own.last_step_event != r.event) std::erase_if(mismatches_, [&](const Mismatch& of) { return of.key.rank == r.rank && of.key.event == r.event; });
}

void ParameterJudge::observe(const Observation& o) {
  switch (o.role) {
    case Role::applied_gradient: return apply(o);
    case Role::parameter:
    case Role::master_parameter:
    case Role::first_moment:
    case Role::second_moment: return check(o);
    default: return;
  }
}

ParameterJudge::Owned& ParameterJudge::owned(std::uint32_t rank, std::uint32_t parameter, std::uint64_t offset, std::uint64_t numel) {
  for (Owned& o : ranks_[rank].owned)
    if (o.parameter == parameter && o.offset == offset && o.weight.size() == numel) return o;
  Owned& o = ranks_[rank].owned.emplace_back(Owned{{}, parameter, offset, contract_.optimizer_of(parameter)});
  std::vector<double> initial(numel);
  source_.initial_parameter(parameter, offset, initial);
  for (double x : initial) o.weight.push_back({x, 0.0});  // representable in the model dtype, so exact in fp32
  o.first_moment.assign(numel, {});
  o.second_moment.assign(numel, {});
  return o;
}

const ParameterJudge::Values& ParameterJudge::Owned::at(std::uint32_t event) const {
  for (const auto& [until, values] : before)
    if (until > event) return values;
  return *this;
}

bool ParameterJudge::RankState::steps_in(std::uint32_t event) const {
  return last_step_event == event || std::binary_search(earlier_steps.begin(), earlier_steps.end(), event);  // ascending
}

// Where nothing holds it back, a rank is steps ahead of others that have yet to show what an earlier one of its steps gave them.
void ParameterJudge::begin_step(std::uint32_t rank, std::uint32_t event) {
  RankState& mine = ranks_[rank];
  const std::uint32_t last = std::exchange(mine.last_step_event, event);
  if (last == event || last == never) return;
  if (std::any_of(ranks_.begin(), ranks_.end(), [&](const RankState& other) { return &other != &mine && other.ended <= last; })) return mine.earlier_steps.push_back(last);
  mine.earlier_steps.clear();
  for (Owned& each : mine.owned) each.before.clear();
}

void ParameterJudge::apply(const Observation& o) {
  begin_step(o.rank, o.event);
  std::vector<double> gradient;
  for (const ObservedPiece& piece : o.pieces) {
    if (piece.parameter < 0 || piece.numel == 0) continue;
    gradient.resize(piece.numel);
    read_stored(piece.dtype, piece.data, piece.numel, gradient.data());
    Owned& mine = owned(o.rank, static_cast<std::uint32_t>(piece.parameter), piece.parameter_offset, piece.numel);
    if (!ranks_[o.rank].earlier_steps.empty()) mine.before.emplace_back(o.event, mine);
    const bool muon = mine.optimizer.type == OptimizerType::muon;
    const Rounding format = rounding_of(contract_.accumulation, o.scale);
    const Hyperparameters constants(mine.optimizer, ++mine.steps, fp32_);
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      const Bounded applied{gradient[i] / o.scale, (piece.error ? piece.error[i] : 0.0) / o.scale};
      if (muon) {
        take_in(mine, i, applied, format, fp32_);
        continue;
      }
      update(mine, i, applied, constants);
      if (contract_.steps_in_model_dtype) mine.weight[i] = rounded(mine.weight[i], model_);
    }
  }
}

ParameterJudge::Hyperparameters::Hyperparameters(const OptimizerConfig& config, std::uint32_t step, Rounding fp32)
    : lr(hyperparameter(config.learning_rate, fp32)), decay(hyperparameter(config.weight_decay, fp32)) {
  if (config.type == OptimizerType::sgd) return;
  beta1 = hyperparameter(config.beta1, fp32);
  rest1 = hyperparameter(1 - config.beta1, fp32);
  beta2 = hyperparameter(config.beta2, fp32);
  rest2 = hyperparameter(1 - config.beta2, fp32);
  correction1 = hyperparameter(1 - std::pow(config.beta1, step), fp32);
  correction2 = hyperparameter(1 - std::pow(config.beta2, step), fp32);
  epsilon = hyperparameter(config.epsilon, fp32);
}

// The textbook formulas; each operation rounds once to fp32. Implementations associate differently and fuse: the last rounding is taken
// four times more, which covers every ordering of the factors in the final update.
void ParameterJudge::update(Owned& owned, std::size_t i, Bounded g, const Hyperparameters& with) const {
  const OptimizerConfig& config = owned.optimizer;
  Bounded& weight = owned.weight[i];
  const auto minus = [](Bounded x) { return Bounded{-x.value, x.error}; };
  const auto reordered = [&](Bounded x) {
    for (int extra = 0; extra < 4; ++extra) x = rounded(x, fp32_);
    return x;
  };
  if (config.type != OptimizerType::adamw && config.weight_decay != 0) g = add(g, mul(with.decay, weight, fp32_), fp32_);
  if (config.type == OptimizerType::sgd) {
    weight = add(weight, minus(mul(with.lr, g, fp32_)), fp32_);
    return;
  }
  Bounded& m = owned.first_moment[i];
  Bounded& v = owned.second_moment[i];
  m = add(mul(with.beta1, m, fp32_), mul(with.rest1, g, fp32_), fp32_);
  v = add(mul(with.beta2, v, fp32_), mul(mul(with.rest2, g, fp32_), g, fp32_), fp32_);
  const Bounded denominator = add(root(div(v, with.correction2, fp32_), fp32_), with.epsilon, fp32_);
  Bounded change = mul(with.lr, div(div(m, with.correction1, fp32_), denominator, fp32_), fp32_);
  if (config.type == OptimizerType::adamw && config.weight_decay != 0) change = add(change, mul(with.lr, mul(with.decay, weight, fp32_), fp32_), fp32_);
  weight = rounded(add(weight, minus(reordered(change)), fp32_), fp32_);
}

// Each of the two products and their sum rounds once to the format that the momentum is kept in; an interpolation that fuses them rounds no more
// than one of these again.
void ParameterJudge::take_in(Owned& owned, std::size_t i, Bounded g, Rounding format, Rounding constants) {
  const double keeps = owned.optimizer.momentum;
  Bounded& m = owned.first_moment[i];
  m = rounded(add(mul(hyperparameter(keeps, constants), m, format), mul(hyperparameter(1 - keeps, constants), g, format), format), format);
}

// An element of a snapshot is stepped by the rank itself, or by the rank that owns it. Where each rank steps all that it holds, no other does.
const ParameterJudge::Owned* ParameterJudge::stepped(const Observation& o, std::uint32_t parameter, std::uint64_t element) const {
  const Owned* of_another_place = nullptr;
  const RankState& own = ranks_[o.rank];
  const bool kept = own.last_step_event != o.event && std::any_of(own.owned.begin(), own.owned.end(), [&](const Owned& mine) { return mine.holds(parameter, element); });
  if (kept) return nullptr;  // others step their copies
  const auto world = static_cast<std::uint32_t>(ranks_.size()), asked = contract_.steps_own_copies ? 1 : world;
  for (std::uint32_t turn = 0; turn < asked; ++turn) {
    const std::uint32_t rank = (o.rank + turn) % world;
    const RankState& state = ranks_[rank];
    if (!state.steps_in(o.event)) continue;
    for (const Owned& mine : state.owned) {
      if (!mine.holds(parameter, element)) continue;
      if (places_.empty()) return &mine;
      const std::vector<std::uint32_t>& places = places_[contract_.share_of[parameter]];
      if (places[rank] == places[o.rank]) return &mine;
      if (!of_another_place) of_another_place = &mine;
    }
  }
  return of_another_place;
}

const std::vector<Bounded>& ParameterJudge::of_role(const Owned& owned, const Observation& o) {
  const Values& values = owned.at(o.event);
  if (!is_moment(o.role)) return values.weight;
  return o.role == Role::second_moment ? values.second_moment : values.first_moment;
}

Bounded ParameterJudge::due_of(const Owned& owned, const Observation& o, std::uint64_t element) const {
  const Bounded& reference = of_role(owned, o)[element - owned.offset];
  return o.role == Role::parameter && !contract_.steps_in_model_dtype ? rounded(reference, model_) : reference;
}

// Several ranks may step the same element, each for those that gather it from there. Which these are is not known here: any of them will do.
bool ParameterJudge::is_of_another(const Observation& o, std::uint32_t parameter, std::uint64_t element, double value) const {
  if (ranks_[o.rank].last_step_event == o.event &&
      std::any_of(ranks_[o.rank].owned.begin(), ranks_[o.rank].owned.end(), [&](const Owned& mine) { return mine.holds(parameter, element); }))
    return false;
  for (const RankState& state : ranks_)
    for (const Owned& other : state.owned) {
      if (!state.steps_in(o.event) || !other.holds(parameter, element)) continue;
      const Bounded due = due_of(other, o, element);
      if (std::abs(value - due.value) <= due.error) return true;
    }
  return false;
}

void ParameterJudge::check(const Observation& o) {
  ++statistics_.snapshots;
  const RankState& own = ranks_[o.rank];
  // What others stepped in this event reaches it in one of its own, if its script has them apart. Where it skips, KeptStateJudge holds it to what it had.
  if ((own.kept_at == o.event || own.raised_at == o.event) && own.last_step_event != o.event) return;
  if (std::none_of(ranks_.begin(), ranks_.end(), [&](const RankState& rank) { return rank.steps_in(o.event); })) return;  // nobody stepped
  Mismatch mismatch;
  double worst = -1;
  std::vector<double> stored;
  for (const ObservedPiece& piece : o.pieces) {
    if (piece.parameter < 0) continue;
    const auto p = static_cast<std::uint32_t>(piece.parameter);
    stored.resize(piece.numel);
    read_stored(piece.dtype, piece.data, piece.numel, stored.data());
    const Owned* owner = nullptr;  // neighbours mostly share it
    for (std::uint64_t i = 0; i < piece.numel; ++i) {
      const std::uint64_t element = piece.parameter_offset + i;
      if (!owner || !owner->holds(p, element)) owner = stepped(o, p, element);
      if (!owner) continue;  // nobody stepped it in this event: the step was skipped
      if (owner->optimizer.type == OptimizerType::muon && !is_moment(o.role)) continue;
      ++statistics_.elements;
      const Bounded due = due_of(*owner, o, element);
      if (!std::isfinite(due.error) || !std::isfinite(due.value)) {
        ++statistics_.inconclusive;
        continue;
      }
      const double value = stored[i] / o.scale, error = std::abs(value - due.value);
      if (error <= due.error) {
        statistics_.passed(error, due.error);
        continue;
      }
      if (is_of_another(o, p, element, value)) continue;
      ++mismatch.wrong_elements;
      if (!mismatch.ranges.empty() && mismatch.ranges.back().parameter == p && mismatch.ranges.back().end == element) ++mismatch.ranges.back().end;
      else mismatch.ranges.push_back({p, element, element + 1});
      const double measure = std::isnan(error) || due.error == 0 ? HUGE_VAL : error / due.error;
      if (measure <= worst) continue;
      worst = measure;
      std::uint64_t bits = 0;
      std::memcpy(&bits, piece.data + i * size_of(piece.dtype), size_of(piece.dtype));
      mismatch.worst = {p, element, value, due.value, due.error, bits, piece.dtype};
    }
  }
  if (mismatch.wrong_elements == 0) return;
  mismatch.key = {o.event, o.at_end, o.rank, std::string(o.buffer)};
  mismatch.role = o.role;
  mismatches_.push_back(std::move(mismatch));
}

}  // namespace gradledger::ref
