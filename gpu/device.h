// What owns something on the GPU, and how a CUDA call that fails is reported.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <source_location>
#include <stdexcept>
#include <string>

#include "sim/base/result.h"

namespace gradledger::gpu {

// A CUDA call failed: what was attempted, CUDA's name and text for the error, file and line.
class DeviceError : public std::runtime_error {
 public:
  DeviceError(cudaError_t code, const std::string& text) : std::runtime_error(text), code_(code) {}
  cudaError_t code() const { return code_; }

 private:
  cudaError_t code_;
};

[[noreturn]] void raise_device_error(cudaError_t code, const char* what, std::source_location where);

// Every CUDA call goes through here; `what` names the attempt ("copy to the device").
inline void check(cudaError_t code, const char* what, std::source_location where = std::source_location::current()) {
  if (code != cudaSuccess) [[unlikely]]
    raise_device_error(code, what, where);
}

struct DeviceDescription {
  std::string name;
  int compute_capability;  // 90 for 9.0
  int multiprocessors;
  std::size_t memory_bytes;
  int driver_version, runtime_version;  // 13000 for 13.0

  std::string text() const;
};

// The current device, if there is one that can run the kernels; the error says what is missing.
Result<DeviceDescription> find_device();

// Uninitialised device memory, aligned to at least 256 bytes.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  explicit DeviceMemory(std::size_t bytes);
  ~DeviceMemory();
  DeviceMemory(DeviceMemory&& other) noexcept { swap(other); }
  DeviceMemory& operator=(DeviceMemory&& other) noexcept {
    swap(other);
    return *this;
  }

  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

 private:
  void swap(DeviceMemory& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
  }
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

// A stream that does not wait for the default stream.
class Stream {
 public:
  Stream();
  ~Stream();
  Stream(Stream&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Stream& operator=(Stream&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }

  cudaStream_t handle() const { return handle_; }
  // Returns when everything on the stream is done; an error of an earlier kernel is raised here.
  void synchronize() const;

 private:
  cudaStream_t handle_ = nullptr;
};

}  // namespace gradledger::gpu
