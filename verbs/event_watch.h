// What every rank did and held in each event, as the primary pass shows it.
#pragma once

#include <cstdint>
#include <map>
#include <utility>

#include "report/report.h"
#include "sim/trace/producer.h"
#include "sim/trace/repeated_memory.h"

namespace gradledger::verbs {

class EventWatch final : public TraceSink, public NeedsNoRepeatedMemory {
 public:
  using Place = std::pair<std::uint32_t, std::uint32_t>;  // event, rank

  void observe(const Observation& observation) override;
  void weights(const WeightObservation& observation) override;
  void collective(const CollectiveRecord& record) override { at({record.event, record.rank}).collectives.push_back(record.text()); }
  void step_fact(const StepRecord& record) override { at({record.event, record.rank}).facts.emplace_back(record.fact, record.value); }
  void event_done(std::uint32_t rank, std::uint32_t event) override { at({event, rank}); }

  // In words what an event is, and which buffer is out of balance, is left to whoever knows the timeline and the verdict.
  const std::map<Place, report::EventLine>& lines() const { return lines_; }

 private:
  report::EventLine& at(const Place& place);

  std::map<Place, report::EventLine> lines_;
};

}  // namespace gradledger::verbs
