// The process that holds a framework: what its end does beside other processes of the machine.
#include <atomic>
#include <cstdlib>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "drivers/sessions/host_process.h"

namespace gradledger::driver {
namespace {

// Whose processes are listed to see that none of the host's runs any more, and may end while they are read.
TEST(a_host_process, ends_beside_processes_that_come_and_go) {
  std::atomic<bool> over{false};
  std::vector<std::jthread> others;
  for (int i = 0; i < 3; ++i)
    others.emplace_back([&] {
      while (!over) EXPECT_EQ(std::system(":"), 0);
    });
  for (int i = 0; i < 400; ++i) {
    HostProcess host({"sleep", "60"}, {}, "/dev/null");
    EXPECT_EQ(host.ended(), std::nullopt);
  }
  over = true;
}

}  // namespace
}  // namespace gradledger::driver
