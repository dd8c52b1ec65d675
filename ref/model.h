// What must be true: for every event, role and rank, the value of each element in fp64 and, where asked, a proven bound on what a
// correct run may differ by. Derived from the scenario and its data alone.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "ref/bounded.h"
#include "ref/elementwise.h"
#include "sim/scenario/workload.h"
#include "sim/scenario/timeline.h"
#include "sim/trace/producer.h"

namespace gradledger::ref {

// One number for every element of every parameter, parameters concatenated in order.
struct Field {
  std::vector<double> value;
  std::vector<double> error;  // empty in exact mode
};

// What states have in common until one of them changes it: most of the window's sums on most ranks are as they were an event ago, or zero.
template <class T>
class Shared {
 public:
  Shared() = default;
  explicit Shared(T value) : value_(std::make_shared<T>(std::move(value))) {}

  const T& operator*() const { return *value_; }
  const T* operator->() const { return value_.get(); }
  bool same_as(const Shared& other) const { return value_ == other.value_; }
  T& own() {
    if (value_.use_count() > 1) value_ = std::make_shared<T>(*value_);
    return *value_;
  }

 private:
  std::shared_ptr<T> value_;
};

class Model {
 public:
  enum class Mode { exact, bounded };

  // What is asked for, and of which arithmetic. wide: every sum and product is in fp64. on_rank: whose applied gradient is meant.
  struct View {
    Layer layer = Layer::documented;
    bool wide = false;
    std::uint32_t on_rank = 0;
  };

  Model(const Workload& workload, const Timeline& timeline, const GradientSource& source, Mode mode) : Model(workload, timeline, source, mode, View{}) {}
  Model(const Workload& workload, const Timeline& timeline, const GradientSource& source, Mode mode, const View& view);

  std::size_t numel() const { return numel_; }
  std::size_t offset(std::uint32_t parameter) const { return offset_[parameter]; }

  // The window whose contributions a snapshot answers for. Inside the event of a step that updates it is still the old one.
  std::uint32_t window(std::uint32_t event, bool at_end) const;

  // In units of the true gradient. References stay valid until forget_before() passes their event, or until the next call.
  // A rank's own sum: of the window so far, or of what came after a reduction of the window.
  const Field& local(std::uint32_t rank, std::uint32_t event, bool at_end, std::uint32_t after_reduction = never);
  // The average over ranks of the window so far, whether it has been reduced or not; and of what has been, by the documentation.
  const Field& reduced(std::uint32_t event, bool at_end);
  const Field& done(std::uint32_t event, bool at_end);
  // Where every rank holds the average: what has been reduced, and the rank's own sum since.
  const Field& replicated(std::uint32_t rank, std::uint32_t event, bool at_end);

  // What gradients are multiplied by, at least, from the backward to the step. 1: some are not.
  double least_scale() const { return least_scale_; }

  // No rank will ask again for anything before `event`.
  void forget_before(std::uint32_t event);

  // L2 norm of a reduced field, for clipping.
  Bounded norm(const Field& reduced) const;

 private:
  // Sums of the open window after some number of its events.
  struct State {
    std::uint32_t step = 0;
    std::vector<Shared<Field>> local;  // by rank
    std::vector<Shared<Field>> since;  // by rank: since the last boundary of the window; before the first one empty, and the same as local
    Shared<Field> reduced;
    bool reduced_once = false;
    std::optional<Field> done;                        // what of `reduced` has been, where contributions wait that came after a reduction
    Shared<std::vector<double>> error_per_backward;   // reduced after every backward, then accumulated; these three: in bounded mode
    Shared<std::vector<double>> error_at_boundary;    // accumulated locally, reduced at boundaries
    Shared<std::vector<double>> reduced_at_boundary;  // magnitude that the last boundary's reduction produced
  };

  std::size_t position(std::uint32_t event, bool at_end) const;
  const State& state(std::size_t position);
  State empty(std::uint32_t step) const;
  void advance(State& state, std::size_t number);
  bool ends_window(std::size_t change) const;
  void apply(State& state, std::uint32_t event, std::uint32_t up_to_event);
  void multiply(State& state, const Event& event);
  void reduce(State& state, std::uint32_t event);
  void approximate(State& state, std::uint32_t event) const;
  double weight_error(double weight) const;
  void add_backwards(State& state, const events::Backward& event, std::uint32_t up_to_event);
  void add_sum_errors(State& state, const events::Backward& event, std::uint32_t up_to_event);
  void add_phase_errors(State& state, const events::Backward& event, std::uint32_t up_to_event);
  void widen_by(State& state, std::uint32_t rank, std::uint32_t parameter, const std::vector<double>& errors);
  void reduce_errors(State& state, std::uint32_t parameter);
  double weight_of(std::uint32_t backward, std::uint32_t rank, std::uint32_t parameter) const;
  void add_backward(State& state, std::uint32_t backward, std::uint32_t up_to_event);
  void add_contribution(State& state, std::uint32_t backward, std::uint32_t rank, std::uint32_t parameter);
  Sums sums_of(Field& field, std::uint32_t parameter) const;
  Reduction reduction_of(std::uint32_t parameter) const;
  void add_errors(State& state, std::uint32_t parameter);
  void errors_at_boundary(State& state, std::uint32_t parameter, const double* least, double* out);
  const Field& local_after(std::uint32_t rank, std::uint32_t event, bool at_end, std::uint32_t reduction);

  const Workload& workload_;
  const Timeline& timeline_;
  const GradientSource& source_;
  Mode mode_;
  View view_;
  std::vector<std::size_t> offset_;
  std::size_t numel_ = 0;
  std::vector<std::uint32_t> changes_;  // events that change the sums: backwards, zero_grads, steps that update
  std::deque<State> states_;            // states_[i] is the state after changes_[first_ + i]
  std::size_t first_ = 0;

  Rounding deposit_, accumulate_, communicate_;
  std::uint64_t more_than_computed_ = 0;  // the bits of a significand in fp64 that the dtype of autograd has not
  double least_scale_ = 1;
  double factor_error_ = 0;            // relative, of the fp32 scale factor that a backward applies
  double average_roundings_ = 0;       // of the division by the world
  std::vector<double> sums_of_share_;  // by parameter: additions between ranks that have parts of one gradient, before it is sent
  std::vector<double> divisor_;        // by parameter: of the sum over ranks

  Shared<Field> zero_;
  Shared<std::vector<double>> zeros_;  // in bounded mode
  Field asked_;                        // the last that was put together on demand
  // Of one parameter, in one backward: a rank's gradient, what it is off by before anything rounds it, and what Fresh has of all ranks.
  std::vector<double> gradient_, gradient_error_, fresh_magnitude_, fresh_error_, fresh_terms_;
  std::vector<Summed> waiting_;  // by rank: what waits of it
};

// By rank, or one for all: what the loop means to be applied. Empty: what the documentation has.
struct MeantModels {
  std::vector<std::unique_ptr<Model>> models;
  bool or_documented = false;  // what the documentation has is right too: whether it is what the loop means, a run on probes says

  bool empty() const { return models.empty(); }
  Model& of(std::uint32_t rank) const { return *models[models.size() == 1 ? 0 : rank]; }
};

}  // namespace gradledger::ref
