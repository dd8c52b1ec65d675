#include "ref/model.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "ref/dtype_facts.h"
#include "sim/base/overloaded.h"
#include "sim/scenario/factor.h"

namespace gradledger::ref {
namespace {

bool power_of_two(double x) {
  int exponent;
  return std::isfinite(x) && x > 0 && std::frexp(x, &exponent) == 0.5;
}

Rounding rounding_of(Dtype dtype) { return {facts_of(dtype).unit_roundoff(), facts_of(dtype).tiny()}; }

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
  deposit_ = rounding_of(computed);
  more_than_computed_ = (std::uint64_t{1} << (facts_of(Dtype::float64).precision - facts_of(computed).precision)) - 1;
  accumulate_ = rounding_of(timeline.contract.accumulation);
  communicate_ = rounding_of(timeline.contract.wire);
  const Contract& contract = timeline.contract;
  const bool exact_factor = power_of_two(contract.steps_scalar) && power_of_two(contract.loss_scale.initial);
  factor_error_ = exact_factor ? 0 : facts_of(Dtype::float32).unit_roundoff();
  const bool exact_average = power_of_two(workload.world_size) && power_of_two(contract.predivide_scalar);
  average_roundings_ = exact_average ? 0 : 3;  // two factors, one of them rounded itself
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

// Whether a gradient has so few significand bits that autograd does not round it.
bool Model::held_as_computed(double gradient) const {
  const auto word = std::bit_cast<std::uint64_t>(gradient);
  constexpr std::uint64_t exponent = 0x7FF0000000000000;
  if ((word & exponent) != 0 && (word & exponent) != exponent) return (word & more_than_computed_) == 0;
  if (!std::isfinite(gradient) || gradient == 0) return !std::isnan(gradient);
  return held_as_computed(gradient * 0x1p54);
}

// A weight of the loop's own is rounded as a scale is.
double Model::weight_error(double weight) const {
  if (factor_error_ > 0) return factor_error_;
  return timeline_.two_layers && !power_of_two(weight) ? facts_of(Dtype::float32).unit_roundoff() : 0;
}

// Of one contribution in one element, `before` of it from the producer's own arithmetic.
double Model::term_error(double gradient, double weight, double of_weight, double before) const {
  const double magnitude = std::abs(gradient * weight) + before;
  const bool exact = before == 0 && of_weight == 0 && held_as_computed(gradient);
  return before + (exact ? 0 : (deposit_.u + of_weight) * magnitude * (1 + deposit_.u)) + deposit_.tiny;
}

void Model::add_term(Field& field, std::size_t i, double term, double error) const {
  field.value[i] += term;
  if (field.error.empty()) return;
  const double sum = std::abs(field.value[i]) + field.error[i] + error;
  const bool alone = field.error[i] == 0 && field.value[i] == term;
  field.error[i] = widened(field.error[i] + error + (alone && accumulate_.u <= deposit_.u ? 0 : accumulate_.of(sum)));
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
  const bool bounded = mode_ == Mode::bounded;
  std::vector<double>& sums = state.reduced.own().value;
  for (std::uint32_t p = 0; p < workload_.parameters.size(); ++p) {
    const std::size_t begin = offset_[p], n = workload_.parameters[p].numel;
    const double divisor = divisor_[p];
    fresh_.resize(n);
    if (bounded) {
      source_error_.resize(source_.network_data() ? n : 0);
      fresh_magnitude_.assign(n, 0.0);
      fresh_error_.assign(n, 0.0);
      fresh_terms_.assign(n, 0);
    }
    for (std::uint32_t r = 0; r < workload_.world_size; ++r) {
      if (timeline_.backwards[backward].micro_batch[r] == no_contribution || timeline_.dropped(backward, r, view_.layer) <= up_to_event) continue;
      if (n == 0 || !timeline_.used(workload_, backward, r, p)) continue;
      // Of what ranks compute alike each has a sum of its own, and one counts.
      const bool counts = timeline_.contract.contributor(r, p) == r;
      const double weight = weight_of(backward, r, p), of_weight = bounded ? weight_error(weight) : 0;
      Field& local = state.local[r].own();
      Field* since = state.since.empty() ? nullptr : &state.since[r].own();
      source_.gradient(backward, r, p, 0, fresh_);
      const bool computed = bounded && !source_error_.empty();  // by the producer, in fp32
      if (computed) source_.gradient_error(backward, r, p, 0, source_error_);
      for (std::size_t i = 0; i < n; ++i) {
        const double term = fresh_[i] * weight;
        const double before = computed ? source_error_[i] * weight : 0;
        if (counts) sums[begin + i] += term / divisor;
        if (term == 0 && before == 0) continue;
        const double error = bounded ? term_error(fresh_[i], weight, of_weight, before) : 0;
        add_term(local, begin + i, term, error);
        if (since) add_term(*since, begin + i, term, error);
        if (!bounded || !counts) continue;
        fresh_magnitude_[i] += (std::abs(term) + before) / divisor;
        fresh_error_[i] += error / divisor;
        if (fresh_terms_[i] < 255) ++fresh_terms_[i];
      }
    }
    if (bounded) add_errors(state, p);
  }
}

// Casting to the wire and back, the division by the world, and adding `terms` values in any order: each partial sum is at most the sum
// of magnitudes. Ranks that have parts of one gradient add these up as they were computed, which the wire may be wider than.
double Model::reduction_error(double terms_magnitude, double result_magnitude, int terms, std::uint32_t parameter) const {
  const Rounding& wire = communicate_;
  double error = average_roundings_ * wire.of(terms_magnitude);
  if (wire.u > std::min(accumulate_.u, deposit_.u)) error += wire.of(terms_magnitude);  // the cast of a sum, or of what was computed
  if (terms > 1) error += (terms - 1) * wire.of(terms_magnitude * (1 + terms * wire.u));
  if (const double sums = sums_of_share_[parameter]; deposit_.u > wire.u) error += sums * deposit_.of(terms_magnitude * (1 + sums * deposit_.u));
  if (accumulate_.u > wire.u) error += accumulate_.of(result_magnitude);
  return error * (1 + (average_roundings_ + 2) * wire.u) + (average_roundings_ + terms + 2) * std::max(wire.tiny, deposit_.tiny);
}

// Two ways are open to a correct engine: reduce each micro-batch and accumulate the averages, or accumulate and reduce at each boundary.
// The bound is the larger of the two.
void Model::add_errors(State& state, std::uint32_t parameter) {
  Field& reduced = state.reduced.own();
  std::vector<double>& per_backward = state.error_per_backward.own();
  const std::size_t begin = offset_[parameter];
  for (std::size_t k = 0; k < fresh_terms_.size(); ++k) {
    const std::size_t i = begin + k;
    if (fresh_terms_[k] > 0) {
      double& error = per_backward[i];
      const bool first = error == 0;
      error += fresh_error_[k] + reduction_error(fresh_magnitude_[k], fresh_magnitude_[k], fresh_terms_[k], parameter);
      if (!first) error += accumulate_.of(std::abs(reduced.value[i]) + error);
      error = widened(error);
    }
    reduced.error[i] = std::max(per_backward[i], error_at_boundary(state, i, parameter));
  }
}

// If everything that waits were reduced now, on top of what the last boundary has left.
double Model::error_at_boundary(const State& state, std::size_t i, std::uint32_t parameter) const {
  double magnitude = (*state.reduced_at_boundary)[i], error = (*state.error_at_boundary)[i];
  int terms = magnitude > 0 ? static_cast<int>(workload_.world_size) : 0;
  const std::vector<Shared<Field>>& waits = state.since.empty() ? state.local : state.since;
  for (std::uint32_t r = 0; r < waits.size(); ++r) {
    const double value = waits[r]->value[i], of_value = waits[r]->error[i];
    if ((value == 0 && of_value == 0) || timeline_.contract.contributor(r, parameter) != r) continue;
    magnitude += (std::abs(value) + of_value) / divisor_[parameter];
    error += of_value / divisor_[parameter];
    terms = std::min(terms + 1, static_cast<int>(workload_.world_size));
  }
  if (terms == 0) return error;
  return widened(error + accumulate_.of(magnitude) + reduction_error(magnitude, std::abs(state.reduced->value[i]) + error, terms, parameter));
}

void Model::reduce(State& state, std::uint32_t event) {
  state.reduced_once = true;
  state.done.reset();
  // Where averages and what is new are one buffer, whatever was averaged before goes over the wire again; and what waits in a part is reduced once more may be.
  if (!timeline_.is_boundary(event) && !timeline_.contract.mixes_own_and_averaged && !timeline_.contract.reduces_in_parts) return;
  if (mode_ == Mode::bounded) {
    std::vector<double>&errors = state.error_at_boundary.own(), &magnitudes = state.reduced_at_boundary.own();
    for (std::uint32_t p = 0; p < workload_.parameters.size(); ++p)
      for (std::size_t i = offset_[p]; i < offset_[p] + workload_.parameters[p].numel; ++i) {
        errors[i] = error_at_boundary(state, i, p);
        magnitudes[i] = std::abs(state.reduced->value[i]) + errors[i];
      }
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
  for (std::size_t i = 0; i < numel_; ++i)
    if (since.value[i] != 0 || (!since.error.empty() && since.error[i] > 0)) add_term(asked_, i, since.value[i], since.error.empty() ? 0 : since.error[i]);
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
