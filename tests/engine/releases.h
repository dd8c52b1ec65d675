// Small scenarios of a release, and runs of them.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/frameworks/deepspeed/settings.h"
#include "tests/support/scripted_engine.h"

namespace gradledger::testing {

inline Scenario of_stage(std::uint32_t number, Dtype dtype, const char* as_of, const std::vector<std::uint32_t>& sizes = {30, 21, 13}) {
  Scenario s = base_scenario(2, sizes, dtype);
  deepspeed_config(s).zero.stage = number;
  s.engine.as_of.base = as_of;
  return s;
}

// Precondition: the scenario is admitted.
inline Keeper run(const Scenario& s, const GradientSource& source = CountingSource{}) {
  expects(!admission_error(s), "a test's scenario is admitted");
  const auto timeline = make_timeline(s);
  HostExecutor executor(s, *timeline);
  Keeper seen;
  executor.run(source, RunOptions{}, seen);
  return seen;
}

}  // namespace gradledger::testing
