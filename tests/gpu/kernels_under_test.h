// Implementations of the array kernels as values in a list: the host's, its twins replayed on the CPU, its twins on the device.
// The comparison tests in this folder run a call on the host's and on one of the others and compare all bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "sim/numeric/difference.h"
#include "sim/numeric/fused.h"
#include "sim/numeric/kernels.h"

namespace gradledger::testing {

// A tensor of a bucket.
struct Tensor {
  std::byte* data;
  std::size_t n;
};

// The signatures of sim/numeric over addresses in the implementation's own memory, scalars that depend on a norm among it.
class Kernels {
 public:
  virtual ~Kernels() = default;

  // Why nothing can run here; empty where it can.
  virtual std::string unavailable() const { return {}; }
  // One row in how many of an exhaustive table is run.
  virtual std::size_t rows_step() const { return 1; }

  // As many as give every thread of a launch several packs; a replay has a small grid instead.
  virtual std::size_t long_array_elements() const { return 30'001; }

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
  virtual void square_root(float* target, std::size_t n) = 0;
  virtual void sgd(float* parameter, const float* gradient, float learning_rate, float weight_decay, std::size_t n) = 0;
  virtual void adam_fused(float* parameter, const float* gradient, float* first, float* second, const numeric::AdamScalars& s, std::size_t n) = 0;
  virtual void adam_cpu(float* parameter, const float* gradient, float* first, float* second, const numeric::AdamScalars& s, std::size_t n) = 0;

  virtual void unscale(Dtype dtype, void* target, float factor, std::size_t n, std::uint8_t* flag) = 0;
  virtual void multiply_by_stored(Dtype dtype, void* target, const float* factor, std::size_t n) = 0;
  virtual void accumulate_with_norm(Dtype target_dtype, void* target, Dtype source_dtype, const void* source, float factor, std::size_t n, double* norm, std::uint8_t* flag) = 0;
  virtual void combined_factor(const double* squared_norm, double scale, double clip, float* factor) = 0;
  virtual void clip_coefficient(const double* squared_norm, double clip, float* coefficient) = 0;
  virtual void adam_mixed(const numeric::MixedAdamCall& call, float factor, const float* coefficient, const numeric::AdamScalars& s, std::size_t n) = 0;

  virtual void flatten(Dtype flat_dtype, void* flat, Dtype tensor_dtype, const std::vector<Tensor>& tensors) = 0;
  virtual void unflatten(Dtype tensor_dtype, const std::vector<Tensor>& tensors, Dtype flat_dtype, const void* flat) = 0;
  virtual void difference(Dtype dtype, const void* a, const void* b, const float* bounds, std::size_t n, numeric::Difference* result) = 0;
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
