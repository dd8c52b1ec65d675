// The passes, one after the other: a reference, not made to be fast.
#include "sim/numeric/fused.h"

#include <algorithm>
#include <cmath>
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

void accumulate_with_norm(Dtype target_dtype, void* target, Dtype source_dtype, const void* source, float factor, std::size_t n, double* norm,
                          std::uint8_t* flag) {
  expects(target_dtype != Dtype::float64, "a norm is taken of gradients");
  accumulate(target_dtype, target, source_dtype, source, n);
  if (!all_finite(target_dtype, target, n)) *flag = 1;
  std::vector<float> unscaled = widened(target_dtype, target, n);
  multiply(Dtype::float32, unscaled.data(), factor, n);
  *norm = squared_norm(Dtype::float32, unscaled.data(), n);
}

float combined_factor(double squared_norm, double scale, double clip) {
  const double norm = std::sqrt(squared_norm);
  if (!(clip > 0) || !std::isfinite(norm)) return static_cast<float>(1.0 / scale);
  const float ratio = (static_cast<float>(norm) / static_cast<float>(scale) + clip_guard) / static_cast<float>(clip);
  return 1.0f / (std::max(ratio, 1.0f) * static_cast<float>(scale));
}

float clip_coefficient(double squared_norm, double clip) {
  const float coefficient = static_cast<float>(clip) / (static_cast<float>(std::sqrt(squared_norm)) + clip_guard);
  return clip > 0 && coefficient < 1.0f ? coefficient : 1.0f;
}

void adam_mixed(const MixedAdamArrays& arrays, float factor, float coefficient, const AdamScalars& s, std::size_t n) {
  expects(arrays.output_dtype == Dtype::bfloat16 || arrays.output_dtype == Dtype::float16, "the second copy of the parameters has 16 bits");
  std::vector<float> gradient = widened(arrays.gradient_dtype, arrays.gradient, n);
  multiply(Dtype::float32, gradient.data(), factor, n);
  multiply(Dtype::float32, gradient.data(), coefficient, n);
  adam_fused(arrays.parameter, gradient.data(), arrays.first, arrays.second, s, n);
  convert(arrays.output_dtype, arrays.output, Dtype::float32, arrays.parameter, n);
}

}  // namespace gradledger::numeric
