// The trace file: every record of a primary pass, as it happens.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "report/json_parts.h"
#include "sim/base/files.h"
#include "sim/trace/producer.h"

namespace gradledger::report {

// JSON lines, one a record, hex floats beside decimal ones; the schedule's decisions last.
class TraceWriter final : public TraceSink {
 public:
  explicit TraceWriter(OutputFile out) : out_(std::move(out)) {}

  // The first line: what ran, and by which program.
  void header(const std::string& command, const std::string& scenario, std::uint64_t seed);
  // The last line. Errors: not all of it could be written.
  std::optional<InputError> finish(const RunSummary& summary);

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
  void line(const nlohmann::ordered_json& json) { out_.write(json_line(json)); }

  OutputFile out_;
};

}  // namespace gradledger::report
