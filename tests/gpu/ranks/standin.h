// Devices for tests: all ranks on stand-ins, by threads or by processes, with the stand-in for NCCL.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <chrono>
#include <memory>

#include "gpu/ranks/process_devices.h"
#include "gpu/ranks/thread_devices.h"
#include "tests/gpu/ranks/standin_device.h"

namespace gradledger::testing {

// In the environment while it lives.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
  ~Variable() { unsetenv(name_); }

 private:
  const char* name_;
};

inline gpu::NcclLibrary standin_library() {
  setenv("GRADLEDGER_NCCL", STANDIN_NCCL, 1);
  auto library = gpu::NcclLibrary::load();
  EXPECT_TRUE(library) << (library ? "" : library.error().text());
  return std::move(library).value();
}

inline std::unique_ptr<Devices> thread_devices(std::uint32_t jitter = 0, std::chrono::milliseconds deadline = std::chrono::seconds(60)) {
  return std::make_unique<gpu::ThreadDevices>([jitter](std::uint32_t rank) { return std::make_unique<StandinDevice>(rank, jitter); }, standin_library(), deadline);
}

inline std::unique_ptr<gpu::ProcessDevices> process_devices(std::chrono::milliseconds deadline = std::chrono::seconds(60)) {
  setenv("GRADLEDGER_NCCL", STANDIN_NCCL, 1);
  return std::make_unique<gpu::ProcessDevices>(gpu::spawning_launcher({STANDIN_RANK}), gpu::Listening{}, deadline);
}

}  // namespace gradledger::testing
