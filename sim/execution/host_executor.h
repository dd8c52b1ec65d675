// The host executor: virtual ranks with true storage, one rounded operation at a time, under a seeded schedule.
#pragma once

#include <memory>
#include <vector>

#include "sim/execution/collectives.h"
#include "sim/execution/rank.h"
#include "sim/trace/producer.h"

namespace gradledger {

class HostExecutor final : public Producer {
 public:
  // Preconditions: the scenario was checked (select_engine, make_timeline); both outlive the executor.
  HostExecutor(const Scenario& scenario, const Timeline& timeline, CollectiveArithmetic arithmetic = CollectiveArithmetic::nccl_ring);
  ~HostExecutor() override;

  std::string_view name() const override { return "host"; }

  // Linear runs make no decision on values, so their programs are recorded once and run again for every further source.
  RunSummary run(const GradientSource& source, const RunOptions& options, TraceSink& sink) override;

 private:
  class Run;

  const Scenario& scenario_;
  const Timeline& timeline_;
  CollectiveArithmetic arithmetic_;
  std::vector<Rank> ranks_;
  bool recorded_ = false;          // ranks_ hold complete programs of a linear run
  bool recorded_observes_ = false;
};

}  // namespace gradledger
