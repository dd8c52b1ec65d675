// The process of a rank on a stand-in for the device: usage standin_rank --rank N --address A
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "gpu/ranks/process_devices.h"
#include "tests/gpu/ranks/standin_device.h"

int main(int argc, char** argv) {
  using namespace gradledger;
  std::uint32_t number = 0;
  std::string place;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::strcmp(argv[i], "--rank") == 0) number = static_cast<std::uint32_t>(std::stoul(argv[i + 1]));
    if (std::strcmp(argv[i], "--address") == 0) place = argv[i + 1];
  }
  const auto address = gpu::spawned_address(number, place);
  if (!address) {
    std::fprintf(stderr, "%s\n", address.error().text().c_str());
    return 2;
  }
  const char* fault = std::getenv("STANDIN_RANK_FAULT");  // "absent-1": rank 1 ends at once; "device-0": the device of rank 0 fails
  const std::string own = std::to_string(number);
  if (fault && fault == "absent-" + own) return 7;
  const auto failed = gpu::serve_rank(
      *address,
      [&](std::uint32_t rank) -> std::unique_ptr<gpu::DeviceApi> {
        if (fault && fault == "device-" + own) throw std::runtime_error("this device has fallen off the bus");
        return std::make_unique<testing::StandinDevice>(rank, 50);
      },
      std::chrono::seconds(20));
  if (failed && !(fault && *fault)) std::fprintf(stderr, "rank %u: %s\n", number, failed->c_str());
  return failed ? 5 : 0;
}
