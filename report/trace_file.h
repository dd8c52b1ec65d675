// The trace file: every record of a primary pass, as it happens.
#pragma once

#include <cstdint>
#include <fstream>
#include <string>

#include <nlohmann/json.hpp>

#include "sim/trace/producer.h"

namespace gradledger::report {

// JSON lines, one a record, hex floats beside decimal ones; the schedule's decisions last.
class TraceWriter final : public TraceSink {
 public:
  explicit TraceWriter(const std::string& path) : out_(path, std::ios::trunc) {}

  bool ok() const { return static_cast<bool>(out_); }
  // The first line: what ran, and by which program.
  void header(const std::string& command, const std::string& scenario, std::uint64_t seed);
  void finish(const RunSummary& summary);

  void observe(const Observation& observation) override;
  void collective(const CollectiveRecord& record) override;
  void memory(const MemoryRecord& record) override;
  void step_fact(const StepRecord& record) override;
  void event_done(std::uint32_t rank, std::uint32_t event) override;
  void unwritten(const UnwrittenRecord& record) override;
  void engine_error(const EngineErrorRecord& record) override;
  void deadlock(const DeadlockRecord& record) override;
  void mismatch(const MismatchRecord& record) override;
  void race(const RaceRecord& record) override;

 private:
  void line(const nlohmann::ordered_json& json) { out_ << json.dump() << '\n'; }

  std::ofstream out_;
};

}  // namespace gradledger::report
