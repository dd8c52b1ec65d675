// The host executor: virtual ranks with true storage, one rounded operation at a time, under a seeded schedule.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "sim/execution/collectives.h"
#include "sim/execution/rank.h"
#include "sim/trace/producer.h"

namespace gradledger {

// Makes the engine of one rank: make_engine, or a stand-in.
using EngineFactory = std::function<std::unique_ptr<Engine>(const EngineContext&)>;

class HostExecutor final : public Producer {
 public:
  // Preconditions: the scenario was admitted (sim/load.h) and the timeline is its own; both outlive the executor.
  HostExecutor(const Scenario& scenario, const Timeline& timeline, CollectiveArithmetic arithmetic = CollectiveArithmetic::nccl_ring,
               EngineFactory factory = make_engine);
  ~HostExecutor() override;

  std::string_view name() const override { return "host"; }

  // Linear runs make no decision on values, so their programs are recorded once and run again for every further source.
  RunSummary run(const GradientSource& source, const RunOptions& options, TraceSink& sink) override;

 private:
  class Run;

  const Scenario& scenario_;
  const Timeline& timeline_;
  CollectiveArithmetic arithmetic_;
  EngineFactory factory_;
  std::vector<Rank> ranks_;
  bool recorded_ = false;          // ranks_ hold complete programs of a linear run
  bool recorded_observes_ = false;
};

}  // namespace gradledger
