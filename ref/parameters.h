// Weights and optimizer state after each step: the fp64 update of the gradient that the step was seen to apply, with a derived bound.
// Independent of whether that gradient was right. Of Muon its state alone: momentum' = momentum x b + gradient x (1 - b), in the dtype that
// gradients accumulate in, with the gradient as the loss has it, whatever loss scale was on the way (Jordan et al., Muon, 2024, in the form of
// an average that its implementations have). What the weights become is an orthogonalization, which has no reference here.
#pragma once

#include <cstdint>
#include <vector>

#include "ref/bounded.h"
#include "ref/judge.h"

namespace gradledger::ref {

class ParameterJudge final : public TraceSink {
 public:
  ParameterJudge(const Workload& workload, const Contract& contract, const GradientSource& source);

  void observe(const Observation& observation) override;
  void step_fact(const StepRecord& record) override;
  void event_done(std::uint32_t rank, std::uint32_t event) override { ranks_[rank].ended = event + 1; }
  void engine_error(const EngineErrorRecord& record) override;

  const std::vector<Mismatch>& mismatches() const { return mismatches_; }
  const JudgeStatistics& statistics() const { return statistics_; }

 private:
  struct Values {
    std::vector<Bounded> weight, first_moment, second_moment;
  };
  // The optimizer's view of the elements that one rank steps.
  struct Owned : Values {
    std::uint32_t parameter;
    std::uint64_t offset;
    OptimizerConfig optimizer;  // of its group
    std::uint32_t steps = 0;    // that had a gradient of it
    // What it was up to the step of an event, ascending: of steps that some rank has not come to the end of.
    std::vector<std::pair<std::uint32_t, Values>> before;

    const Values& at(std::uint32_t event) const;

    bool holds(std::uint32_t p, std::uint64_t element) const { return p == parameter && element >= offset && element - offset < weight.size(); }
  };
  struct RankState {
    std::vector<Owned> owned;
    std::uint32_t last_step_event = never;
    std::vector<std::uint32_t> earlier_steps;  // events, of steps that some rank has not come to the end of
    std::uint32_t kept_at = never;             // it says that it leaves everything as it was
    std::uint32_t raised_at = never;           // its last event with an exception
    std::uint32_t ended = 0;                   // events that it is through with

    bool steps_in(std::uint32_t event) const;
  };

  // Of one step, as the device has them. Moments: zero where there are none.
  struct Hyperparameters {
    Hyperparameters(const OptimizerConfig& config, std::uint32_t step, Rounding fp32);

    Bounded lr, decay, beta1, rest1, beta2, rest2, correction1, correction2, epsilon;
  };

  Owned& owned(std::uint32_t rank, std::uint32_t parameter, std::uint64_t offset, std::uint64_t numel);
  void begin_step(std::uint32_t rank, std::uint32_t event);
  void apply(const Observation& observation);
  void update(Owned& owned, std::size_t i, Bounded gradient, const Hyperparameters& with) const;
  static void take_in(Owned& owned, std::size_t i, Bounded gradient, Rounding format, Rounding constants);
  void check(const Observation& observation);
  static Rounding rounding_of(Dtype format, double scale);
  const Owned* stepped(const Observation& observation, std::uint32_t parameter, std::uint64_t element) const;
  Bounded due_of(const Owned& owned, const Observation& observation, std::uint64_t element) const;
  bool is_of_another(const Observation& observation, std::uint32_t parameter, std::uint64_t element, double value) const;
  static const std::vector<Bounded>& of_role(const Owned& owned, const Observation& observation);

  const Workload& workload_;
  const Contract& contract_;
  const GradientSource& source_;
  // By share of gradients and rank: its place among the ranks that share. Weights are gathered between ranks of one place.
  std::vector<std::vector<std::uint32_t>> places_;
  Rounding fp32_, model_;
  std::vector<RankState> ranks_;
  std::vector<Mismatch> mismatches_;
  JudgeStatistics statistics_;
};

}  // namespace gradledger::ref
