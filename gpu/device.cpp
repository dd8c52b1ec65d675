#include "gpu/device.h"

namespace gradledger::gpu {
namespace {

constexpr int compute_capability_min = 90;

std::string version_text(int version) { return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10); }

}  // namespace

void raise_device_error(cudaError_t code, const char* what, std::source_location where) {
  throw DeviceError(
      code, std::string(what) + " failed: " + cudaGetErrorString(code) + " (" + cudaGetErrorName(code) + ", " + where.file_name() + ":" + std::to_string(where.line()) + ")");
}

std::string DeviceDescription::text() const {
  return name + ", compute capability " + std::to_string(compute_capability / 10) + "." + std::to_string(compute_capability % 10) + ", " + std::to_string(multiprocessors) +
         " multiprocessors, " + std::to_string(memory_bytes >> 20) + " MiB, driver for CUDA " + version_text(driver_version) + ", runtime " + version_text(runtime_version);
}

Result<DeviceDescription> find_device() {
  int count = 0;
  // Without a driver the answer is cudaErrorInsufficientDriver, without a device cudaErrorNoDevice.
  if (const cudaError_t code = cudaGetDeviceCount(&count); code != cudaSuccess || count == 0) {
    cudaGetLastError();  // the next call must not report it again
    const char* reason = code == cudaSuccess ? "no device" : cudaGetErrorString(code);
    return InputError{"gpu", std::string("no GPU is visible (") + reason + "); run on a machine with an NVIDIA GPU and its driver"};
  }
  int device = 0;
  check(cudaGetDevice(&device), "asking for the current device");
  cudaDeviceProp properties;
  check(cudaGetDeviceProperties(&properties, device), "asking for the properties of the device");
  DeviceDescription found{properties.name, properties.major * 10 + properties.minor, properties.multiProcessorCount, properties.totalGlobalMem, 0, 0};
  check(cudaDriverGetVersion(&found.driver_version), "asking for the driver's version");
  check(cudaRuntimeGetVersion(&found.runtime_version), "asking for the runtime's version");
  if (found.compute_capability < compute_capability_min) return InputError{"gpu", found.name + " is older than compute capability 9.0, for which the kernels are compiled"};
  return found;
}

DeviceMemory::DeviceMemory(std::size_t bytes) : bytes_(bytes) {
  if (bytes == 0) return;
  void* allocated = nullptr;
  check(cudaMalloc(&allocated, bytes), "allocation of device memory");
  data_ = static_cast<std::byte*>(allocated);
}

// A destructor cannot report; a failure that matters shows at the next synchronisation.
DeviceMemory::~DeviceMemory() {
  if (data_) cudaFree(data_);
}

Stream::Stream() { check(cudaStreamCreateWithFlags(&handle_, cudaStreamNonBlocking), "creation of a stream"); }

Stream::~Stream() {
  if (handle_) cudaStreamDestroy(handle_);
}

void Stream::synchronize() const { check(cudaStreamSynchronize(handle_), "waiting for a stream"); }

}  // namespace gradledger::gpu
