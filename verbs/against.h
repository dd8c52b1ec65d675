// A real framework and its model on the same scenario and data: the weights after every step, element by element.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>

#include "verbs/session.h"

namespace gradledger::verbs {

struct AgainstModel {
  std::uint64_t elements = 0, events = 0;  // compared
  std::string difference;                  // the first, with both values; empty: none
  std::string up_to;                       // what weights are compared up to, where they differ behind it, both rightly: a norm added up in another order, an approximation, a race
};

// What a run showed: weights by event, rank and element, as they were shown last in a step, and norms.
class ShownWeights final : public TraceSink {
 public:
  using Place = std::tuple<std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t>;  // event, rank, parameter, element
  using Norm = std::tuple<std::uint32_t, std::uint32_t, StepFact>;                       // event, rank, which

  explicit ShownWeights(const Timeline& timeline) : timeline_(timeline) {}

  void observe(const Observation& o) override;
  void step_fact(const StepRecord& fact) override;
  void race(const RaceRecord& r) override { first_race_ = std::min(first_race_, r.event); }
  void unwritten(const UnwrittenRecord&) override { depends_on_streams_ = true; }

  const std::map<Place, double>& at() const { return at_; }
  const std::map<Norm, double>& norms() const { return norms_; }
  bool depends_on_streams() const { return depends_on_streams_; }
  std::uint32_t first_race() const { return first_race_; }

 private:
  bool depends_on_streams_ = false;
  std::uint32_t first_race_ = never;  // event
  const Timeline& timeline_;
  std::map<Place, double> at_;
  std::map<Norm, double> norms_;
};

// Both ran the same scenario on the same data; the model's has the races, of which a CPU shows none.
AgainstModel compare_weights(const Scenario& scenario, const Timeline& timeline, const ShownWeights& real, const ShownWeights& model);

// Nothing where there is nothing to hold it against: the framework has no engine here, or none for this configuration; or its optimizer is a
// kernel that drivers do not compile, which PyTorch's arithmetic stands in for. Precondition: options.driver. Throws
// ProgramsTooLarge, driver::NotRun and RunFailure.
std::optional<AgainstModel> against_model(const Loaded& loaded, const Options& options);

}  // namespace gradledger::verbs
