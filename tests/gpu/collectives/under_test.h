// The ways of running ranks that a program compares with the host's prediction: stand-ins, or GPUs with NCCL.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "sim/execution/devices.h"

namespace gradledger::testing {

struct RanksUnderTest {
  const char* name;
  std::unique_ptr<Devices> (*make)();
  std::string (*unavailable)();  // why nothing can run here; empty where it can
  std::uint32_t world_max = 8;
  std::uint32_t numel_max = 20'000'000;  // a slow way leaves out what is larger
};

std::vector<RanksUnderTest> ranks_under_test();

}  // namespace gradledger::testing
