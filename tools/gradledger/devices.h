// The devices that the options ask for.
#pragma once

#include <memory>

#include "sim/base/result.h"
#include "sim/execution/devices.h"
#include "tools/gradledger/options.h"

namespace gradledger::tool {

// Null where the options ask for none. An error that is unavailable says what this build or machine lacks. Under a launcher the ranks behind
// the first serve it here and never return: see served.
struct DevicesMade {
  std::unique_ptr<Devices> devices;
  std::optional<int> served;  // the exit code of a rank that served
};
Result<DevicesMade> make_devices(const Options& options);

}  // namespace gradledger::tool
