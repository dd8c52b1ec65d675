#include "tests/gpu/collectives/under_test.h"
#include "tests/gpu/ranks/standin.h"

namespace gradledger::testing {

std::vector<RanksUnderTest> ranks_under_test() {
  const auto available = [] { return std::string(); };
  return {{"standin_threads", [] { return thread_devices(); }, available, 8, 2'200'000},
          {"standin_processes", []() -> std::unique_ptr<Devices> { return process_devices(); }, available, 4, 2'200'000}};
}

}  // namespace gradledger::testing
