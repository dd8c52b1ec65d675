// Runs of a producer as a file, from which they are judged later and elsewhere: docs/conformance.md has the format.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "sim/base/lines.h"
#include "sim/scenario/scenario.h"
#include "sim/trace/producer.h"

namespace gradledger::conform {

// Who ran it.
struct TraceOrigin {
  std::string driver;                           // "deepspeed"; of the simulator "host"
  std::map<std::string, std::string> versions;  // by package
  std::uint64_t seed = 0;                       // that the oracle was given
};

// A producer whose runs go on to the sink as they are, and into a file besides. The oracle that judges the file asks for the same passes again.
class RecordingProducer final : public Producer {
 public:
  // All outlive the producer. What is written of the scenario is what it says, its gradients included.
  RecordingProducer(Producer& inner, const Scenario& scenario, const Timeline& timeline, const TraceOrigin& origin, LineWriter file);

  std::string_view name() const override { return inner_.name(); }
  // A trace holds numbers: weights would be in no file.
  Capabilities capabilities() const override {
    Capabilities out = inner_.capabilities();
    out.weights = false;
    return out;
  }
  RunSummary run(const GradientSource& source, const RunOptions& options, TraceSink& sink) override;

  // The last line; notes: what the driver replaced by something like it. Errors: not all of it could be written.
  std::optional<InputError> close(const std::vector<std::string>& notes = {});

  std::uint64_t passes() const { return passes_; }

 private:
  Producer& inner_;
  const Scenario& scenario_;
  const Timeline& timeline_;
  LineWriter file_;
  std::uint64_t passes_ = 0;
};

}  // namespace gradledger::conform
