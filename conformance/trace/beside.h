// A trace beside the simulator's runs of the same scenario with the same data: what both show of applied gradients and weights, bit for bit.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "sim/scenario/scenario.h"
#include "sim/scenario/timeline.h"
#include "sim/trace/producer.h"

namespace gradledger::conform {

// Answers whoever judges with the trace, and runs the other producer beside it.
class BesideProducer final : public Producer {
 public:
  // All outlive it. weights: false where the optimizer's arithmetic is another one here, so that gradients alone tell.
  BesideProducer(Producer& trace, Producer& replay, const Scenario& scenario, const Timeline& timeline, bool weights = true)
      : trace_(trace), replay_(replay), scenario_(scenario), timeline_(timeline), weights_(weights) {}

  std::string_view name() const override { return trace_.name(); }
  Capabilities capabilities() const override { return trace_.capabilities(); }
  RunSummary run(const GradientSource& source, const RunOptions& options, TraceSink& sink) override;

  std::uint64_t elements() const { return elements_; }    // held against each other
  const std::string& difference() const { return why_; }  // where first and how; empty: none

 private:
  // Values of whole parameters, as far as a rank shows them; by event, rank, role and parameter.
  using Shown = std::map<std::tuple<std::uint32_t, std::uint32_t, Role, std::int32_t>, std::vector<double>>;
  class Collector;

  void compare(const Shown& recorded, const Shown& replayed);

  Producer& trace_;
  Producer& replay_;
  const Scenario& scenario_;
  const Timeline& timeline_;
  bool weights_;
  std::uint64_t elements_ = 0;
  std::string why_;
};

}  // namespace gradledger::conform
