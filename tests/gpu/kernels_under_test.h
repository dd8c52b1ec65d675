// Implementations of the array kernels as values in a list: the host's, its twins replayed on the CPU, its twins on the device.
// The comparison tests in this folder run a call on the host's and on one of the others and compare all bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "sim/numeric/kernels.h"

namespace gradledger::testing {

// The signatures of sim/numeric/kernels.h over addresses in the implementation's own memory.
class Kernels {
 public:
  virtual ~Kernels() = default;

  // Why nothing can run here; empty where it can.
  virtual std::string unavailable() const { return {}; }
  // How many rows of an exhaustive table to leave out between two that are run.
  virtual std::size_t rows_step() const { return 1; }

  // A copy of the bytes in the memory of slot `slot`, aligned to 256 bytes; valid until the slot is next placed.
  virtual std::byte* place(std::size_t slot, const std::vector<std::byte>& bytes) = 0;
  // What the slot holds now, after all calls before.
  virtual void read(std::size_t slot, std::vector<std::byte>& bytes) = 0;

  virtual void convert(Dtype target_dtype, void* target, Dtype source_dtype, const void* source, std::size_t n) = 0;
  virtual void accumulate(Dtype target_dtype, void* target, Dtype source_dtype, const void* source, std::size_t n) = 0;
  virtual void multiply(Dtype dtype, void* target, float factor, std::size_t n) = 0;
  virtual void divide(Dtype dtype, void* target, float divisor, std::size_t n) = 0;
  virtual void premultiply(Dtype dtype, void* target, const void* source, float scalar, std::size_t n) = 0;
  virtual void fused_accumulate(Dtype dtype, void* target, const void* source, float scalar, std::size_t n) = 0;
  virtual void maximum_u8(void* target, const void* source, std::size_t n) = 0;
  virtual void fill(Dtype dtype, void* target, double value, std::size_t n) = 0;
  virtual void flag_not_finite(Dtype dtype, const void* source, std::size_t n, std::uint8_t* flag) = 0;
  virtual void squared_norm(Dtype dtype, const void* source, std::size_t n, double* result) = 0;
  virtual void sgd(float* parameter, const float* gradient, float learning_rate, float weight_decay, std::size_t n) = 0;
  virtual void adam_fused(float* parameter, const float* gradient, float* first, float* second, const numeric::AdamScalars& s, std::size_t n) = 0;
  virtual void adam_cpu(float* parameter, const float* gradient, float* first, float* second, const numeric::AdamScalars& s, std::size_t n) = 0;
};

struct Implementation {
  const char* name;
  std::unique_ptr<Kernels> (*make)();
};

// sim/numeric, the side that is right.
std::unique_ptr<Kernels> host_kernels();

// Those that this program compares with it: defined in twins/ and in device/.
std::vector<Implementation> implementations_under_test();

}  // namespace gradledger::testing
