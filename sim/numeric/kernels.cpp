// Kernels that need no vectors; the others are in kernels_simd.cpp.
#include "sim/numeric/kernels.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>
#include <vector>

#include "sim/numeric/dispatch_dtype.h"
#include "sim/numeric/scalar.h"

namespace gradledger::numeric {

void maximum_u8(void* target, const void* source, std::size_t n) {
  auto* out = static_cast<std::uint8_t*>(target);
  const auto* in = static_cast<const std::uint8_t*>(source);
  for (std::size_t i = 0; i < n; ++i) out[i] = out[i] < in[i] ? in[i] : out[i];
}

void fill(Dtype dtype, void* target, double value, std::size_t n) {
  if (dtype == Dtype::uint8) {
    std::fill_n(static_cast<std::uint8_t*>(target), n, static_cast<std::uint8_t>(value));
    return;
  }
  if (dtype == Dtype::int32) {
    std::fill_n(static_cast<std::int32_t*>(target), n, static_cast<std::int32_t>(value));
    return;
  }
  if (dtype == Dtype::float64) {
    for (std::size_t i = 0; i < n; ++i) static_cast<double*>(target)[i] = value;
    return;
  }
  with_dtype(dtype, [&](auto t) {
    using T = decltype(t);
    const T stored = narrow_double<T>(value);
    for (std::size_t i = 0; i < n; ++i) static_cast<T*>(target)[i] = stored;
  });
}

namespace {

// The tree over one chunk of at most 4096 values given by `at`. Lanes that hold nothing would add zeros: they are left out.
template <class At>
double tree_sum(std::size_t n, At&& at) {
  double lane[256];
  const std::size_t lanes = std::bit_ceil(std::clamp<std::size_t>(n, 1, 256));
  for (std::size_t l = 0; l < lanes; ++l) {
    double sum = 0;
    for (std::size_t k = l; k < n; k += 256) sum += at(k);
    lane[l] = sum;
  }
  for (std::size_t width = lanes / 2; width > 0; width /= 2)
    for (std::size_t l = 0; l < width; ++l) lane[l] += lane[l + width];
  return lane[0];
}

// Chunk sums, then the same tree over them, until one is left.
template <class At>
double tree_sum_of_chunks(std::size_t n, At&& at) {
  constexpr std::size_t chunk = 4096;
  if (n <= chunk) return tree_sum(n, at);
  std::vector<double> partial((n + chunk - 1) / chunk);
  for (std::size_t c = 0; c < partial.size(); ++c) {
    const std::size_t first = c * chunk;
    partial[c] = tree_sum(std::min(chunk, n - first), [&](std::size_t i) { return at(first + i); });
  }
  while (partial.size() > 1) {
    std::vector<double> next((partial.size() + chunk - 1) / chunk);
    for (std::size_t c = 0; c < next.size(); ++c) next[c] = tree_sum(std::min(chunk, partial.size() - c * chunk), [&](std::size_t i) { return partial[c * chunk + i]; });
    partial = std::move(next);
  }
  return partial.front();
}

}  // namespace

double squared_norm(Dtype dtype, const void* source, std::size_t n) {
  double sum = 0;
  with_dtype(dtype, [&](auto t) {
    using T = decltype(t);
    const T* in = static_cast<const T*>(source);
    sum = tree_sum_of_chunks(n, [&](std::size_t i) {
      const double x = static_cast<double>(widen(in[i]));
      return x * x;
    });
  });
  return sum;
}

void sgd(float* parameter, const float* gradient, float learning_rate, float weight_decay, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) {
    float g = gradient[i];
    if (weight_decay != 0) g = fma(parameter[i], weight_decay, g);
    parameter[i] = fma(g, -learning_rate, parameter[i]);
  }
}

void adam_fused(float* parameter, const float* gradient, float* first, float* second, const AdamScalars& s, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) {
    const float p = parameter[i];
    float g = gradient[i];
    if (!s.decoupled_decay) g = add(g, mul(s.weight_decay, p));
    const float m = add(mul(s.beta1, first[i]), mul(s.one_minus_beta1, g));
    const float v = add(mul(s.beta2, second[i]), mul(mul(s.one_minus_beta2, g), g));
    const float denominator = add(std::sqrt(div(v, s.bias_correction2)), s.epsilon);
    float update = div(div(m, s.bias_correction1), denominator);
    if (s.decoupled_decay) update = add(update, mul(s.weight_decay, p));
    first[i] = m;
    second[i] = v;
    parameter[i] = canonical(p - mul(s.learning_rate, update));
  }
}

void adam_cpu(float* parameter, const float* gradient, float* first, float* second, const AdamScalars& s, std::size_t n) {
  const float inverse_root = 1.0f / std::sqrt(s.bias_correction2);
  const float step_size = -s.learning_rate / s.bias_correction1;
  const float decay = -s.learning_rate * s.weight_decay;
  for (std::size_t i = 0; i < n; ++i) {
    float p = parameter[i];
    float g = gradient[i];
    if (s.weight_decay > 0 && !s.decoupled_decay) g = fma(p, s.weight_decay, g);
    const float m = fma(g, s.one_minus_beta1, mul(first[i], s.beta1));
    const float v = fma(mul(g, g), s.one_minus_beta2, mul(second[i], s.beta2));
    const float denominator = fma(std::sqrt(v), inverse_root, s.epsilon);
    if (s.weight_decay > 0 && s.decoupled_decay) p = fma(p, decay, p);
    first[i] = m;
    second[i] = v;
    parameter[i] = fma(div(m, denominator), step_size, p);
  }
}

}  // namespace gradledger::numeric
