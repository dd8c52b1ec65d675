// Sinks of the primary pass: the lines that a person reads, and the trace file.
#pragma once

#include <cstdint>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "sim/trace/producer.h"

namespace gradledger::tool {

// What one rank did and held in one event, in short.
struct EventLine {
  struct Buffer {
    std::string name;
    Role role = Role::scratch;
    Dtype dtype = Dtype::float32;
    double norm = 0;  // of its parameter elements, in true units
    bool at_end = true;
  };
  std::vector<std::string> collectives;
  std::vector<Buffer> buffers;
  std::vector<std::pair<StepFact, double>> facts;
};

class EventWatch final : public TraceSink {
 public:
  void observe(const Observation& observation) override;
  void collective(const CollectiveRecord& record) override { lines_[{record.event, record.rank}].collectives.push_back(record.text()); }
  void step_fact(const StepRecord& record) override { lines_[{record.event, record.rank}].facts.emplace_back(record.fact, record.value); }
  void event_done(std::uint32_t rank, std::uint32_t event) override { lines_[{event, rank}]; }

  const std::map<std::pair<std::uint32_t, std::uint32_t>, EventLine>& lines() const { return lines_; }  // event, rank

 private:
  std::map<std::pair<std::uint32_t, std::uint32_t>, EventLine> lines_;
};

// JSON lines, one a record, hex floats beside decimal ones; the schedule's decisions last.
class TraceWriter final : public TraceSink {
 public:
  explicit TraceWriter(const std::string& path) : out_(path, std::ios::trunc) {}

  bool ok() const { return static_cast<bool>(out_); }
  void header(const nlohmann::ordered_json& json) { line(json); }
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

}  // namespace gradledger::tool
