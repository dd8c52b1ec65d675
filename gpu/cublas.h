// The few functions of cuBLAS that are used, from the library as it is found at run time: nothing is needed to build, and a machine without
// it is told where it was looked for.
#pragma once

#include <cuda_runtime_api.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "gpu/network_pass.h"
#include "sim/base/result.h"

namespace gradledger::gpu {

// What to open, in this order: the file that GRADLEDGER_CUBLAS names and nothing else, if it is set; the names that the loader finds; the
// wheels below each folder of packages (nvidia/cu13/lib, nvidia/cublas/lib).
std::vector<std::string> cublas_candidates(const char* given, const std::vector<std::filesystem::path>& package_folders);

// A handle that multiplies in fp32: pedantic math, so neither TF32 nor emulation.
class Cublas {
 public:
  // Work is enqueued on the stream, which outlives the handle. Errors: no library, or one that lacks a function or refuses a handle.
  static Result<std::unique_ptr<Cublas>> open(cudaStream_t stream);
  ~Cublas();
  Cublas(const Cublas&) = delete;
  Cublas& operator=(const Cublas&) = delete;

  const std::string& library() const { return library_; }
  // Throws std::runtime_error where cuBLAS refuses the call.
  void gemm(const GemmCall& call) const;

 private:
  struct Functions;
  Cublas() = default;

  std::string library_;
  std::unique_ptr<Functions> functions_;
  void* handle_ = nullptr;
};

}  // namespace gradledger::gpu
