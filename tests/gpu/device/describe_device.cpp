// Prints the GPU and exits with 0, or says why there is none and exits with 4.
#include <cstdio>

#include "gpu/device.h"

int main() {
  const gradledger::Result<gradledger::gpu::DeviceDescription> device = gradledger::gpu::find_device();
  if (!device) {
    std::fprintf(stderr, "%s\n", device.error().text().c_str());
    return 4;
  }
  std::puts(device->text().c_str());
}
