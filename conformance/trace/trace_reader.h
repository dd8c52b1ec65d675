// A trace that was written by a RecordingProducer, or by whoever keeps to its format, as a producer: it answers what the oracle asks for with what
// was recorded for just that.
#pragma once

#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "conformance/trace/record.h"
#include "conformance/trace/trace_writer.h"
#include "sim/base/lines.h"
#include "sim/base/result.h"

namespace gradledger::conform {

// The oracle asks for a pass that was not recorded: another version of it, or other options.
class PassNotRecorded final : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Whether a file says of itself that it is one. Errors: of the file.
Result<bool> is_trace(const std::string& path);

// The first line.
struct TraceHead {
  nlohmann::json scenario;
  TraceOrigin origin;
  Capabilities capabilities;
};

// What comes after it.
struct TraceBody {
  std::unique_ptr<Producer> producer;
  std::vector<std::string> notes;  // what the driver replaced by something like it
  std::vector<std::string> lacks;  // what none of its passes shows, in words
};

// A file up to the end of its first line. The scenario in it is for the caller to read: what comes after is held to it.
class TraceFile {
 public:
  // Errors: of the file, and a first line that is none of a trace.
  static Result<TraceFile> open(const std::string& path);

  const TraceHead& head() const { return head_; }
  std::string where() const { return reader_.where(); }

  // The rest. Takes at most so many bytes of memory. Errors: with the line.
  Result<TraceBody> passes(const Workload& workload, const Timeline& timeline, std::uint64_t bytes_max) &&;

 private:
  TraceFile(LineReader reader, TraceHead head) : reader_(std::move(reader)), head_(std::move(head)) {}

  LineReader reader_;
  TraceHead head_;
};

}  // namespace gradledger::conform
