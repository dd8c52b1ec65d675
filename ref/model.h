// What must be true: for every event, role and rank, the value of each element in fp64 and, where asked, a proven bound on what a
// correct run may differ by. Derived from the scenario and its data alone.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "ref/bounded.h"
#include "sim/scenario/workload.h"
#include "sim/scenario/timeline.h"
#include "sim/trace/producer.h"

namespace gradledger::ref {

// One number for every element of every parameter, parameters concatenated in order.
struct Field {
  std::vector<double> value;
  std::vector<double> error;  // empty in exact mode
};

class Model {
 public:
  enum class Mode { exact, bounded };

  Model(const Workload& workload, const Timeline& timeline, const GradientSource& source, Mode mode);

  std::size_t numel() const { return numel_; }
  std::size_t offset(std::uint32_t parameter) const { return offset_[parameter]; }

  // The window whose contributions a snapshot answers for. Inside the event of a step that updates it is still the old one.
  std::uint32_t window(std::uint32_t event, bool at_end) const;

  // In units of the true gradient. References stay valid until forget_before() passes their event.
  const Field& local(std::uint32_t rank, std::uint32_t event, bool at_end);
  const Field& reduced(std::uint32_t event, bool at_end);

  // No rank will ask again for anything before `event`.
  void forget_before(std::uint32_t event);

  // L2 norm of a reduced field, for clipping.
  Bounded norm(const Field& reduced) const;

 private:
  // Sums of the open window after some number of its events.
  struct State {
    std::uint32_t step = 0;
    std::vector<Field> local;             // by rank
    std::vector<Field> since_boundary;    // by rank: not reduced yet, if reductions happen at boundaries
    Field reduced;
    std::vector<double> error_per_backward;  // reduced after every backward, then accumulated
    std::vector<double> error_at_boundary;   // accumulated locally, reduced at boundaries
    std::vector<double> reduced_at_boundary; // magnitude that the last boundary's reduction produced
  };

  std::size_t position(std::uint32_t event, bool at_end) const;
  const State& state(std::size_t position);
  State empty(std::uint32_t step) const;
  void advance(State& state, std::uint32_t event);
  void multiply(State& state, const Event& event);
  bool held_by_the_model_dtype(double gradient) const;
  void add_backward(State& state, std::uint32_t backward, std::uint32_t up_to_event);
  void add_errors(State& state, const Backward& backward);
  double reduction_error(double terms_magnitude, double result_magnitude, int terms) const;

  const Workload& workload_;
  const Timeline& timeline_;
  const GradientSource& source_;
  Mode mode_;
  std::vector<std::size_t> offset_;
  std::size_t numel_ = 0;
  std::vector<std::uint32_t> changes_;      // events that change the sums: backwards, zero_grads, steps that update
  std::deque<State> states_;                // states_[i] is the state after changes_[first_ + i]
  std::size_t first_ = 0;

  Rounding deposit_, accumulate_, communicate_;
  double factor_error_ = 0;       // relative, of the fp32 scale factor that a backward applies
  double average_roundings_ = 0;  // of the division by the world
  double world_divisor_ = 1;

  std::vector<double> fresh_;                   // one backward's terms on one rank
  std::vector<double> source_error_;            // of these terms, before anything rounds them
  std::vector<double> fresh_magnitude_;         // sum over ranks of |term|
  std::vector<double> fresh_error_;             // sum over ranks of the terms' errors
  std::vector<std::uint8_t> fresh_terms_;       // how many ranks' terms are not zero
};

}  // namespace gradledger::ref
