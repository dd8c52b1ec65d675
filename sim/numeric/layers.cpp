#include "sim/numeric/layers.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace gradledger::numeric {
namespace {

constexpr float half_root_two = static_cast<float>(std::numbers::sqrt2 / 2);
constexpr float density_at_zero = static_cast<float>(std::numbers::inv_sqrtpi / std::numbers::sqrt2);

}  // namespace

// The alternating power series in fp64: its terms stay below 2^20, so cancellation leaves more than 30 bits. From 4 on erf rounds to 1.
float error_function(float x) {
  const double argument = x;
  if (!(std::abs(argument) < 4)) return std::isnan(x) ? x : x < 0 ? -1.0f : 1.0f;
  constexpr int terms = 80;
  double power = argument, sum = argument;
  for (int n = 1; n < terms; ++n) {
    power *= -argument * argument / n;
    sum += power / (2 * n + 1);
  }
  return static_cast<float>(sum * 2 * std::numbers::inv_sqrtpi);
}

// 2^k e^r with |r| at most half of ln 2, and Taylor's series for e^r in fp64. Below -110 fp32 has nothing but zero.
float exponential(float x) {
  if (!(x >= -110)) return std::isnan(x) ? x : 0.0f;
  const double k = std::nearbyint(x / std::numbers::ln2), r = x - k * std::numbers::ln2;
  double sum = 1;
  for (int n = 20; n > 0; --n) sum = 1 + sum * r / n;
  return static_cast<float>(std::ldexp(sum, static_cast<int>(k)));
}

float gelu(float x) {
  const float doubled = 1.0f + error_function(x * half_root_two);
  return 0.5f * x * doubled;
}

float gelu_slope(float x) {
  const float distribution = 0.5f * (1.0f + error_function(x * half_root_two));
  const float density = exponential(-0.5f * x * x) * density_at_zero;
  return distribution + x * density;
}

void linear(const float* weight, const float* bias, const float* x, float* y, std::size_t in, std::size_t out) {
  for (std::size_t o = 0; o < out; ++o, weight += in) {
    float sum = 0;
    for (std::size_t i = 0; i < in; ++i) sum += weight[i] * x[i];
    y[o] = bias ? sum + bias[o] : sum;
  }
}

void linear_input_gradient(const float* weight, const float* gradient, float* input_gradient, std::size_t in, std::size_t out) {
  std::fill_n(input_gradient, in, 0.0f);
  for (std::size_t o = 0; o < out; ++o, weight += in)
    for (std::size_t i = 0; i < in; ++i) input_gradient[i] += weight[i] * gradient[o];
}

void linear_parameter_gradients(const float* x, const float* gradient, float* weight_gradient, float* bias_gradient, std::size_t in, std::size_t out) {
  for (std::size_t o = 0; o < out; ++o, weight_gradient += in)
    for (std::size_t i = 0; i < in; ++i) weight_gradient[i] += gradient[o] * x[i];
  for (std::size_t o = 0; bias_gradient && o < out; ++o) bias_gradient[o] += gradient[o];
}

void squared_error_gradient(const float* y, const float* target, float factor, float* gradient, std::size_t out) {
  for (std::size_t o = 0; o < out; ++o) gradient[o] = (y[o] - target[o]) * factor;
}

}  // namespace gradledger::numeric
