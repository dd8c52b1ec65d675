// Exact contents of buffers, as a scenario expects them of the primary pass.
#pragma once

#include <string>
#include <vector>

#include "sim/scenario/scenario.h"
#include "sim/trace/producer.h"

namespace gradledger::verbs {

class ExpectedValuesSink final : public TraceSink {
 public:
  explicit ExpectedValuesSink(const std::vector<ExpectedValues>& expected) : expected_(expected), seen_(expected.size()) {}

  void observe(const Observation& observation) override;

  // One line for each entry that was not met. Precondition: the run is over.
  std::vector<std::string> unmet() const;

 private:
  struct Seen {
    bool met = false;
    std::string how_not, others;  // what the buffer held; buffers that were shown at the same event and rank
  };

  const std::vector<ExpectedValues>& expected_;
  std::vector<Seen> seen_;
};

}  // namespace gradledger::verbs
