#include "ref/model.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "ref/dtype_facts.h"
#include "ref/error_chain.h"
#include "sim/base/overloaded.h"
#include "sim/scenario/factor.h"

namespace gradledger::ref {
namespace {

bool power_of_two(double x) {
  int exponent;
  return std::isfinite(x) && x > 0 && std::frexp(x, &exponent) == 0.5;
}

// What gradients are multiplied by, at least, wherever a format could lose them below its normal numbers: a dynamic scale halves once a step. 1 where some
// are not multiplied, or no longer.
double least_scale_of(const Timeline& timeline) {
  const LossScalePolicy& policy = timeline.contract.loss_scale;
  int steps = 0;
  for (const Event& event : timeline.events) {
    const auto* backward = event.as<events::Backward>();
    if (event.direct() || event.is<events::Unscale>() || (backward && backward->past_scaler)) return 1;
    steps += event.steps() ? 1 : 0;
  }
  if (!policy.dynamic) return std::max(1.0, policy.initial);
  return std::max({1.0, std::min(policy.minimum, policy.initial), std::ldexp(policy.initial, -steps)});
}

// What one rounding of fp64 stands for: in place of each the reference has one of its own, for its weight, product and sum two more, and what
// the loop does to gradients adds a product or a quotient and a sum over ranks each time.
double wide_roundoff(const Timeline& timeline) {
  return (4.0 + (2.0 + timeline.world_size) * static_cast<double>(timeline.touched.size())) * facts_of(Dtype::float64).unit_roundoff();
}

// Whether an event by itself changes what a rank's sum, or the average, must be. What the loop does to gradients by hand changes no sum that
// is due: those windows are judged by what was applied.
bool changes_sums(const Event& event) {
  using namespace events;
  return std::visit(overloaded{[](const one_of<events::Backward, EngineZeroGrad, OptimizerZeroGrad, SetGradient, Restore> auto&) { return true; },
                               [](const one_of<Forward, SetBoundary, EnterNoSync, ExitNoSync, EnterCoalesce, ExitCoalesce, Step, Raise, ScaleGradients, ClipGradients, AllReduce,
                                               Finalize, Save, Unscale, OfFramework> auto&) { return false; }},
                    event.body);
}

}  // namespace

Model::Model(const Workload& workload, const Timeline& timeline, const GradientSource& source, Mode mode, const View& view)
    : workload_(workload), timeline_(timeline), source_(source), mode_(mode), view_(view) {
  for (const Parameter& p : workload.parameters) {
    offset_.push_back(numel_);
    numel_ += p.numel;
  }
  for (std::uint32_t e = 0; e < timeline.events.size(); ++e) {
    const Event& event = timeline.events[e];
    const bool reduces = std::binary_search(timeline.reductions.begin(), timeline.reductions.end(), e);
    if (changes_sums(event) || reduces || timeline.closes(event, view_.layer)) changes_.push_back(e);
    if (event.steps_inside()) changes_.push_back(e);  // what it adds, and the end of its window
  }
  const Dtype computed = timeline.contract.computed.value_or(workload.model_dtype);
  zeros_ = Shared(std::vector<double>(mode == Mode::bounded ? numel_ : 0));
  zero_ = Shared(Field{std::vector<double>(numel_), *zeros_});
  least_scale_ = least_scale_of(timeline);
  const auto rounding_of = [&](Dtype dtype) { return Rounding{facts_of(dtype).unit_roundoff(), facts_of(dtype).tiny() / least_scale_}; };
  deposit_ = rounding_of(computed);
  more_than_computed_ = (std::uint64_t{1} << (facts_of(Dtype::float64).precision - facts_of(computed).precision)) - 1;
  accumulate_ = rounding_of(timeline.contract.accumulation);
  communicate_ = rounding_of(timeline.contract.wire);
  const Contract& contract = timeline.contract;
  const bool exact_factor = power_of_two(contract.steps_scalar) && power_of_two(contract.loss_scale.initial);
  factor_error_ = exact_factor ? 0 : facts_of(Dtype::float32).unit_roundoff();
  const bool exact_average = power_of_two(workload.world_size) && power_of_two(value_of(contract.average_divisor)) && power_of_two(contract.predivide_scalar);
  average_roundings_ = exact_average ? 0 : 3;  // two factors, one of them rounded itself
  if (const auto& tokens = contract.token_division) {
    if (tokens->of_window) average_roundings_ += 2;                           // a factor that is rounded itself
    else factor_error_ = gamma(3, facts_of(Dtype::float32).unit_roundoff());  // the loop's weight, the tokens and the steps
  }
  for (std::uint32_t p = 0; p < workload.parameters.size(); ++p) {
    divisor_.push_back(value_of(contract.average_divisor * contract.share_divisor(p)));
    const GradientShare* share = contract.share(p);
    sums_of_share_.push_back(share && !share->copies ? static_cast<double>(std::count(share->first.begin(), share->first.end(), share->first.front()) - 1) : 0);
  }
  if (!view_.wide) return;
  deposit_ = accumulate_ = communicate_ = {wide_roundoff(timeline), facts_of(Dtype::float64).tiny()};
  factor_error_ = deposit_.u;
  average_roundings_ = 3;
}

std::uint32_t Model::window(std::uint32_t event, bool at_end) const { return timeline_.window_at(event, at_end, view_.layer); }

// How many changes happened by then. Inside a backward that the optimizer runs in, what it adds did, and the end of its window did not.
std::size_t Model::position(std::uint32_t event, bool at_end) const {
  const auto end = at_end ? std::upper_bound(changes_.begin(), changes_.end(), event) : std::lower_bound(changes_.begin(), changes_.end(), event);
  return static_cast<std::size_t>(end - changes_.begin()) + (!at_end && event < timeline_.events.size() && timeline_.events[event].steps_inside());
}

bool Model::ends_window(std::size_t change) const {
  const Event& event = timeline_.events[changes_[change]];
  return event.is<events::Step>() || (change > 0 && changes_[change - 1] == changes_[change]);
}

Model::State Model::empty(std::uint32_t step) const {
  State state;
  state.step = step;
  state.local.assign(workload_.world_size, zero_);
  state.reduced = zero_;
  state.error_per_backward = state.error_at_boundary = state.reduced_at_boundary = zeros_;
  return state;
}

const Model::State& Model::state(std::size_t position) {
  if (states_.empty()) {
    states_.push_back(empty(0));
    first_ = 0;  // states_[0] is before every change
  }
  expects(position >= first_, "a state was asked for after it was forgotten");
  while (first_ + states_.size() <= position) {
    State next = states_.back();
    State& last = states_.back();  // nobody asks it for what only the next one needs
    last.error_per_backward = last.error_at_boundary = last.reduced_at_boundary = zeros_;
    advance(next, first_ + states_.size() - 1);
    states_.push_back(std::move(next));
  }
  return states_[position - first_];
}

void Model::advance(State& state, std::size_t number) {
  const std::uint32_t event = changes_[number];
  const Event& e = timeline_.events[event];
  if (ends_window(number)) {
    state = empty(timeline_.window_of(e, view_.layer) + 1);
    return;
  }
  if (!e.zeroes_gradients() && !e.is<events::Restore>()) return apply(state, event, event);
  // A zero_grad, or a new process behind a checkpoint: the window again, without what was dropped.
  const std::uint32_t window = timeline_.window_of(e, view_.layer);
  state = empty(window);
  for (const std::uint32_t change : changes_)
    if (change < event && timeline_.window_of(timeline_.events[change], view_.layer) == window) apply(state, change, event);
}

// What an event adds to its window, but for what is dropped up to another.
void Model::apply(State& state, std::uint32_t event, std::uint32_t up_to_event) {
  const Event& e = timeline_.events[event];
  const bool reduces = std::binary_search(timeline_.reductions.begin(), timeline_.reductions.end(), event);
  if (const auto* backward = e.as<events::Backward>()) {
    if (!reduces && state.reduced_once && !state.done) state.done = *state.reduced;
    add_backwards(state, *backward, up_to_event);
  }
  if (e.is<events::SetGradient>()) multiply(state, e);
  if (reduces) reduce(state, event);
}

// A product with a factor of few bits: exact, but for what falls below the smallest values and for an odd factor.
void Model::multiply(State& state, const Event& event) {
  const auto& set = *event.as<events::SetGradient>();
  const std::size_t begin = offset_[set.parameter], end = begin + workload_.parameters[set.parameter].numel;
  const double factor = set.factor, u = odd_part(factor) == 1 ? 0 : accumulate_.u, tiny = std::max(accumulate_.tiny, deposit_.tiny);
  const auto grow = [&](double value, double error) { return error == 0 && value == 0 ? 0.0 : widened(error * factor + u * (std::abs(value) + error) * factor + tiny); };
  const auto scale = [&](Field& field, std::size_t i) {
    if (!field.error.empty()) field.error[i] = grow(field.value[i], field.error[i]);
    field.value[i] *= factor;
  };
  for (std::uint32_t r = 0; r < workload_.world_size; ++r) {
    if (!event.runs_on(r)) continue;
    for (std::vector<Shared<Field>>* fields : {&state.local, &state.since}) {
      if (fields->empty()) continue;
      Field& own = (*fields)[r].own();
      for (std::size_t i = begin; i < end; ++i) scale(own, i);
    }
  }
  Field& reduced = state.reduced.own();
  if (mode_ == Mode::bounded) {
    for (std::vector<double>* errors : {&state.error_per_backward.own(), &state.error_at_boundary.own(), &reduced.error})
      for (std::size_t i = begin; i < end; ++i) (*errors)[i] = grow(reduced.value[i], (*errors)[i]);
    std::vector<double>& magnitudes = state.reduced_at_boundary.own();
    for (std::size_t i = begin; i < end; ++i) magnitudes[i] *= factor;
  }
  for (std::size_t i = begin; i < end; ++i) {
    double sum = 0;
    for (std::uint32_t r = 0; r < workload_.world_size; ++r)
      if (timeline_.contract.contributor(r, set.parameter) == r) sum += state.local[r]->value[i];
    if (state.done) scale(*state.done, i);
    reduced.value[i] = event.ranks.empty() ? reduced.value[i] * factor : sum / divisor_[set.parameter];
  }
}

// A weight of the loop's own is rounded as a scale is.
double Model::weight_error(double weight) const {
  if (factor_error_ > 0) return factor_error_;
  return timeline_.two_layers && !power_of_two(weight) ? facts_of(Dtype::float32).unit_roundoff() : 0;
}

// Of a contribution in its rank's own sum. What is meant is meant of the average: the weight that the average leaves it.
double Model::weight_of(std::uint32_t backward, std::uint32_t rank, std::uint32_t parameter) const {
  if (view_.layer == Layer::documented) return timeline_.own_weight(backward, rank);
  return timeline_.averaged_weight_of(parameter, backward, timeline_.contract.contributor(rank, parameter), view_.on_rank, Layer::meant) * divisor_[parameter];
}

void Model::add_backwards(State& state, const events::Backward& event, std::uint32_t up_to_event) {
  for (std::uint32_t i = 0; i < event.summed; ++i) add_backward(state, event.ordinal + i, up_to_event);
  if (event.summed > 1 && mode_ == Mode::bounded) add_sum_errors(state, event, up_to_event);
  if (event.phases > 1 && mode_ == Mode::bounded) add_phase_errors(state, event, up_to_event);
}

void Model::add_backward(State& state, std::uint32_t backward, std::uint32_t up_to_event) {
  for (std::uint32_t p = 0; p < workload_.parameters.size(); ++p) {
    const std::size_t n = workload_.parameters[p].numel;
    gradient_.resize(n);
    if (mode_ == Mode::bounded) {
      gradient_error_.resize(source_.network_data() ? n : 0);
      for (std::vector<double>* sums : {&fresh_magnitude_, &fresh_error_, &fresh_terms_}) sums->assign(n, 0.0);
    }
    for (std::uint32_t r = 0; r < workload_.world_size; ++r) {
      if (timeline_.backwards[backward].micro_batch[r] == no_contribution || timeline_.dropped(backward, r, view_.layer) <= up_to_event) continue;
      if (n > 0 && timeline_.used(workload_, backward, r, p)) add_contribution(state, backward, r, p);
    }
    if (mode_ == Mode::bounded) add_errors(state, p);
  }
}

void Model::add_contribution(State& state, std::uint32_t backward, std::uint32_t r, std::uint32_t p) {
  const bool bounded = mode_ == Mode::bounded, computed = bounded && !gradient_error_.empty();  // by the producer, in fp32
  source_.gradient(backward, r, p, 0, gradient_);
  if (computed) source_.gradient_error(backward, r, p, 0, gradient_error_);
  Terms terms{gradient_.data(), computed ? gradient_error_.data() : nullptr, weight_of(backward, r, p), 0, divisor_[p], deposit_, accumulate_, more_than_computed_};
  if (bounded) terms.weight_error = weight_error(terms.weight);
  // Of what ranks compute alike each has a sum of its own, and one counts.
  const bool counts = timeline_.contract.contributor(r, p) == r;
  const Sums since = state.since.empty() ? Sums{} : sums_of(state.since[r].own(), p);
  const Fresh fresh = bounded && counts ? Fresh{fresh_magnitude_.data(), fresh_error_.data(), fresh_terms_.data()} : Fresh{};
  add_terms(terms, sums_of(state.local[r].own(), p), since, counts ? state.reduced.own().value.data() + offset_[p] : nullptr, fresh, gradient_.size());
}

Sums Model::sums_of(Field& field, std::uint32_t parameter) const {
  return {field.value.data() + offset_[parameter], field.error.empty() ? nullptr : field.error.data() + offset_[parameter]};
}

Reduction Model::reduction_of(std::uint32_t parameter) const {
  return {communicate_, accumulate_, deposit_, average_roundings_, sums_of_share_[parameter], divisor_[parameter], static_cast<double>(workload_.world_size)};
}

// Two ways are open to a correct engine: reduce each micro-batch and accumulate the averages, or accumulate and reduce at each boundary.
// The bound is the larger of the two.
void Model::add_errors(State& state, std::uint32_t parameter) {
  const std::size_t begin = offset_[parameter];
  reduce_backward(reduction_of(parameter), {fresh_magnitude_.data(), fresh_error_.data(), fresh_terms_.data()}, state.reduced->value.data() + begin,
                  state.error_per_backward.own().data() + begin, fresh_terms_.size());
  reduce_errors(state, parameter);
}

void Model::reduce_errors(State& state, std::uint32_t parameter) {
  errors_at_boundary(state, parameter, state.error_per_backward->data() + offset_[parameter], state.reduced.own().error.data() + offset_[parameter]);
}

void Model::errors_at_boundary(State& state, std::uint32_t parameter, const double* least, double* out) {
  const std::size_t begin = offset_[parameter];
  waiting_.clear();
  const std::vector<Shared<Field>>& waits = state.since.empty() ? state.local : state.since;
  for (std::uint32_t r = 0; r < waits.size(); ++r)
    if (timeline_.contract.contributor(r, parameter) == r && !waits[r].same_as(zero_)) waiting_.push_back({waits[r]->value.data() + begin, waits[r]->error.data() + begin});
  const Waiting waiting{waiting_, state.reduced_at_boundary->data() + begin, state.error_at_boundary->data() + begin, state.reduced->value.data() + begin};
  reduce_waiting(reduction_of(parameter), waiting, least, out, workload_.parameters[parameter].numel);
}

void Model::reduce(State& state, std::uint32_t event) {
  state.reduced_once = true;
  state.done.reset();
  // Where averages and what is new are one buffer, whatever was averaged before goes over the wire again; and what waits in a part is reduced once more may be.
  if (!timeline_.is_boundary(event) && !timeline_.contract.mixes_own_and_averaged && !timeline_.contract.reduces_in_parts) return;
  if (mode_ == Mode::bounded) {
    std::vector<double>&errors = state.error_at_boundary.own(), &magnitudes = state.reduced_at_boundary.own();
    for (std::uint32_t p = 0; p < workload_.parameters.size(); ++p) errors_at_boundary(state, p, nullptr, errors.data() + offset_[p]);
    for (std::size_t i = 0; i < numel_; ++i) magnitudes[i] = std::abs(state.reduced->value[i]) + errors[i];
  }
  state.since.assign(workload_.world_size, zero_);
  if (mode_ == Mode::bounded) approximate(state, event);
}

// Whatever was reduced by now of a parameter that is approximated may be anything.
void Model::approximate(State& state, std::uint32_t event) const {
  for (std::uint32_t p = 0; p < workload_.parameters.size(); ++p) {
    if (!timeline_.approximates_values(p, event, true)) continue;
    const auto begin = static_cast<std::ptrdiff_t>(offset_[p]), n = static_cast<std::ptrdiff_t>(workload_.parameters[p].numel);
    for (std::vector<double>* error : {&state.reduced.own().error, &state.error_at_boundary.own(), &state.error_per_backward.own()})
      std::fill_n(error->begin() + begin, n, HUGE_VAL);
  }
}

const Field& Model::local(std::uint32_t rank, std::uint32_t event, bool at_end, std::uint32_t after_reduction) {
  if (after_reduction != never) return local_after(rank, event, at_end, after_reduction);
  return *state(position(event, at_end)).local[rank];
}

// Rare: put together from the contributions themselves.
const Field& Model::local_after(std::uint32_t rank, std::uint32_t event, bool at_end, std::uint32_t reduction) {
  State since = empty(timeline_.window_of(timeline_.events[event], view_.layer));
  for (std::size_t change = 0; change < position(event, at_end); ++change) {
    const Event& e = timeline_.events[changes_[change]];
    if (changes_[change] <= reduction) continue;
    if (ends_window(change)) since = empty(timeline_.window_of(e, view_.layer) + 1);
    else if (const auto* backward = e.as<events::Backward>()) add_backwards(since, *backward, event);
    if (e.is<events::SetGradient>()) multiply(since, e);
  }
  asked_ = std::move(since.local[rank].own());
  return asked_;
}

const Field& Model::reduced(std::uint32_t event, bool at_end) { return *state(position(event, at_end)).reduced; }

const Field& Model::done(std::uint32_t event, bool at_end) {
  const State& now = state(position(event, at_end));
  return now.done ? *now.done : *now.reduced;
}

const Field& Model::replicated(std::uint32_t rank, std::uint32_t event, bool at_end) {
  const State& now = state(position(event, at_end));
  if (now.since.empty()) return *now.local[rank];
  if (!now.done) return *now.reduced;
  asked_ = *now.done;
  const Field& since = *now.since[rank];
  add_sums({since.value.data(), since.error.empty() ? nullptr : since.error.data()}, accumulate_, accumulate_.u <= deposit_.u,
           {asked_.value.data(), asked_.error.empty() ? nullptr : asked_.error.data()}, numel_);
  return asked_;
}

void Model::forget_before(std::uint32_t event) {
  const std::size_t keep = position(event, false);
  while (states_.size() > 1 && first_ < keep) {
    states_.pop_front();
    ++first_;
  }
}

Bounded Model::norm(const Field& reduced) const {
  double squares = 0, error_squares = 0;
  for (std::size_t i = 0; i < numel_; ++i) {
    squares += reduced.value[i] * reduced.value[i];
    if (!reduced.error.empty()) error_squares += reduced.error[i] * reduced.error[i];
  }
  const double norm = std::sqrt(squares);
  // An engine may square and sum in fp32: n + 2 roundings at worst.
  const double roundings = static_cast<double>(numel_ + 2) * facts_of(Dtype::float32).unit_roundoff();
  return {norm, widened(std::sqrt(error_squares) + roundings * norm)};
}

}  // namespace gradledger::ref
