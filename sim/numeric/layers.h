// Linear layers and activations in fp32, one rounded operation at a time and every sum in the order of its index. erf and exp are our own, so
// that no bit depends on a C library.
#pragma once

#include <cstddef>

namespace gradledger::numeric {

// Less than one ulp from the exact value. exponential is for arguments up to 0.
float error_function(float x);
float exponential(float x);

// x times the normal distribution function of x, and its derivative.
float gelu(float x);
float gelu_slope(float x);

// y[o] = sum over i of weight[o, i] x[i], then + bias[o] where there is one. The weight is `out` rows of `in` elements.
void linear(const float* weight, const float* bias, const float* x, float* y, std::size_t in, std::size_t out);

// input_gradient[i] = sum over o of weight[o, i] gradient[o].
void linear_input_gradient(const float* weight, const float* gradient, float* input_gradient, std::size_t in, std::size_t out);

// weight_gradient[o, i] += gradient[o] x[i]; bias_gradient[o] += gradient[o] where there is one.
void linear_parameter_gradients(const float* x, const float* gradient, float* weight_gradient, float* bias_gradient, std::size_t in, std::size_t out);

// gradient[o] = (y[o] - target[o]) factor.
void squared_error_gradient(const float* y, const float* target, float factor, float* gradient, std::size_t out);

}  // namespace gradledger::numeric
