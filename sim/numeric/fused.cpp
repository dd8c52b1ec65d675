// The passes, one after the other: a reference, not made to be fast.
#include "sim/numeric/fused.h"

#include <vector>

#include "sim/base/contract.h"

namespace gradledger::numeric {
namespace {

std::vector<float> widened(Dtype dtype, const void* source, std::size_t n) {
  std::vector<float> elements(n);
  convert(Dtype::float32, elements.data(), dtype, source, n);
  return elements;
}

}  // namespace

void unscale(Dtype dtype, void* target, float factor, std::size_t n, std::uint8_t* flag) {
  if (!all_finite(dtype, target, n)) *flag = 1;
  multiply(dtype, target, factor, n);
}

void accumulate_with_norm(Dtype target_dtype, void* target, Dtype source_dtype, const void* source, float factor, std::size_t n, double* norm, std::uint8_t* flag) {
  expects(target_dtype != Dtype::float64, "a norm is taken of gradients");
  accumulate(target_dtype, target, source_dtype, source, n);
  if (!all_finite(target_dtype, target, n)) *flag = 1;
  std::vector<float> unscaled = widened(target_dtype, target, n);
  multiply(Dtype::float32, unscaled.data(), factor, n);
  *norm = squared_norm(Dtype::float32, unscaled.data(), n);
}

void adam_mixed(const MixedAdamCall& call, float factor, float coefficient, const AdamScalars& s, std::size_t n) {
  expects(call.output_dtype == Dtype::bfloat16 || call.output_dtype == Dtype::float16, "the second copy of the parameters has 16 bits");
  std::vector<float> gradient = widened(call.gradient_dtype, call.gradient, n);
  multiply(Dtype::float32, gradient.data(), factor, n);
  multiply(Dtype::float32, gradient.data(), coefficient, n);
  const auto step = call.cpu_formula ? adam_cpu : adam_fused;
  step(call.parameter, gradient.data(), call.first, call.second, s, n);
  convert(call.output_dtype, call.output, Dtype::float32, call.parameter, n);
}

}  // namespace gradledger::numeric
