// What a run leaves that a checkpoint has, step by step.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "ref/probes.h"
#include "sim/execution/host_executor.h"
#include "sim/load.h"

namespace gradledger::testing {

// All that lasts from step to step: weights, moments, what steps applied and said, by rank, window and name.
class LastingSink final : public TraceSink {
 public:
  using Seen = std::map<std::tuple<std::uint32_t, std::uint32_t, std::string>, std::string>;

  explicit LastingSink(const Timeline& timeline) : timeline_(timeline) {}

  void observe(const Observation& o) override {
    if (o.role != Role::parameter && o.role != Role::first_moment && o.role != Role::second_moment && o.role != Role::applied_gradient) return;
    std::string& bytes = seen[{timeline_.events[o.event].step, o.rank, std::string(o.buffer)}];
    for (const ObservedPiece& piece : o.pieces) bytes.append(reinterpret_cast<const char*>(piece.data), piece.numel * size_of(piece.dtype));
  }
  void step_fact(const StepRecord& fact) override {
    std::string& bytes = seen[{timeline_.events[fact.event].step, fact.rank, "fact " + std::to_string(static_cast<int>(fact.fact))}];
    bytes.append(reinterpret_cast<const char*>(&fact.value), sizeof(fact.value));
  }

  Seen seen;

 private:
  const Timeline& timeline_;
};

inline LastingSink::Seen what_lasts(const Scenario& scenario, std::uint64_t seed) {
  const auto timeline = make_timeline(scenario);
  HostExecutor producer(scenario, *timeline);
  const auto source = ref::value_source(scenario, *timeline, GradientKind::normal, seed);
  LastingSink sink(*timeline);
  EXPECT_TRUE(producer.run(*source, {}, sink).completed);
  return std::move(sink.seen);
}

}  // namespace gradledger::testing
