#include "ref/mlp.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "ref/dtype_facts.h"

namespace gradledger::ref {
namespace {

// Both evaluations err: the one in fp32 that is judged and the one in fp64 here.
const double u32 = facts_of(Dtype::float32).unit_roundoff(), u64 = facts_of(Dtype::float64).unit_roundoff();
double roundings(double n) { return gamma(n, u32) + gamma(n, u64); }

// Of erf and exp, from the exact value: CUDA documents 2 ulp from the rounded one, half an ulp more; glibc 1.
constexpr double erf_ulp = 3, exp_ulp = 3;

// Operands and results below the smallest normal number may be taken for zero: n products and their sum of operands up to `largest`.
double flushed(double n, double largest) { return std::ldexp(2 * n * (1 + largest), facts_of(Dtype::float32).exponent_min); }

// The activation, its derivative, and the most that the second derivative can be: it is (2 - x^2) times the normal density, largest at 0.
double gelu(double x) { return 0.5 * x * (1 + std::erf(x * std::numbers::sqrt2 / 2)); }
double gelu_slope(double x) {
  const double density = std::exp(-0.5 * x * x) * std::numbers::inv_sqrtpi / std::numbers::sqrt2;
  return 0.5 * (1 + std::erf(x * std::numbers::sqrt2 / 2)) + x * density;
}
const double gelu_curvature = std::nextafter(std::numbers::sqrt2 * std::numbers::inv_sqrtpi, 1.0);

constexpr double gelu_roundings = 3 + erf_ulp;             // relative to the argument
constexpr double slope_roundings = 4 + erf_ulp + exp_ulp;  // absolute: the derivative is of order 1

// Products of maps are formed where they take no more multiplications a sample, and no more elements, than this.
constexpr double composed_products_max = 1 << 28, composed_elements_max = 1 << 19;

bool worth_composing(const Mlp& mlp) {
  // Every pass through a layer but the first multiplies the map of every error that arose before it.
  double products = 0, columns = 0, widest = 0;
  for (const LinearLayer& layer : mlp.layers) widest = std::max<double>({widest, static_cast<double>(layer.in), static_cast<double>(layer.out)});
  for (std::size_t l = 1; l < mlp.layers.size(); ++l) {
    products += columns * mlp.layers[l].in * mlp.layers[l].out;
    columns += mlp.layers[l].in;
  }
  for (std::size_t l = mlp.layers.size(); l-- > 1;) {
    products += columns * mlp.layers[l].in * mlp.layers[l].out;
    columns += mlp.layers[l].out;
  }
  return products <= composed_products_max && columns * widest <= composed_elements_max;
}

// No error goes through more fp64 operations than this on its way into a bound.
double slack_of(const Mlp& mlp, std::uint32_t batch) {
  double operations = batch + 64.0;
  for (const LinearLayer& layer : mlp.layers) operations += 2.0 * (layer.in + layer.out + 64.0);
  return 1 + gamma(operations, std::numeric_limits<double>::epsilon());
}

}  // namespace

double MlpReference::Vector::largest() const {
  double out = 0;
  for (std::size_t i = 0; i < value.size(); ++i) out = std::max(out, std::abs(value[i]) + error[i]);
  return out;
}

MlpReference::MlpReference(const Mlp& mlp, std::uint32_t batch, const std::vector<std::vector<double>>& weights)
    : mlp_(mlp), batch_(batch), weights_(weights), composed_(worth_composing(mlp)), slack_(slack_of(mlp, batch)), chain_(composed_, slack_) {
  for (std::vector<Vector>* vectors : {&input_, &sum_, &slope_}) vectors->resize(mlp.layers.size());
  for (const LinearLayer& layer : mlp.layers) {
    double largest = 0;
    for (double w : weights[layer.weight]) largest = std::max(largest, std::abs(w));
    largest_weight_.push_back(largest);
  }
}

MatrixView MlpReference::map_of(std::size_t layer, bool transposed) const {
  const LinearLayer& l = mlp_.layers[layer];
  const double* data = weights_[l.weight].data();
  return transposed ? MatrixView{data, l.in, l.out, true} : MatrixView{data, l.out, l.in, false};
}

MlpGradients MlpReference::run(const Sample& sample) {
  MlpGradients out;
  for (const std::vector<double>& weight : weights_) {
    out.value.emplace_back(weight.size(), 0.0);
    out.error.emplace_back(weight.size(), 0.0);
  }
  std::vector<float> input(mlp_.layers.front().in), target(mlp_.layers.back().out);
  const std::size_t last = mlp_.layers.size() - 1;
  for (std::uint32_t n = 0; n < batch_; ++n) {
    sample(n, input, target);
    input_[0].value.assign(input.begin(), input.end());
    input_[0].error.assign(input.size(), 0.0);
    chain_.start(input.size());
    for (std::size_t l = 0; l <= last; ++l) {
      forward(l);
      if (l < last) activate(l);
    }
    loss_gradient(target);
    for (std::size_t l = last;; --l) {
      collect(l, out);
      if (l == 0) break;
      backward(l);
    }
  }
  for (std::vector<double>& errors : out.error)
    for (double& e : errors) e = std::isnan(e) ? std::numeric_limits<double>::infinity() : e * slack_;
  return out;
}

// A sum of `in` products and a bias: each term is rounded at most once as a product and once with every other term.
void MlpReference::forward(std::size_t layer) {
  const LinearLayer& l = mlp_.layers[layer];
  const Vector& x = input_[layer];
  const double* weight = weights_[l.weight].data();
  const double each = roundings(l.in + (l.bias ? 1.0 : 0.0)), lost = flushed(l.in + 1.0, std::max(largest_weight_[layer], x.largest()));
  Vector& sum = sum_[layer];
  sum.value.assign(l.out, 0.0);
  local_.assign(l.out, 0.0);
  for (std::uint32_t o = 0; o < l.out; ++o, weight += l.in) {
    double value = l.bias ? weights_[*l.bias][o] : 0.0, magnitude = std::abs(value);
    for (std::uint32_t i = 0; i < l.in; ++i) {
      value += weight[i] * x.value[i];
      magnitude += std::abs(weight[i]) * (std::abs(x.value[i]) + x.error[i]);
    }
    sum.value[o] = value;
    local_[o] = each * magnitude + lost;
  }
  chain_.multiply(map_of(layer, false));
  chain_.add(local_);
  sum.error = chain_.bound();
}

// The error of the argument goes on by the slope, what the slope does not say of it and the function's own roundings arise here.
void MlpReference::activate(std::size_t layer) {
  const Vector& sum = sum_[layer];
  Vector &slope = slope_[layer], &next = input_[layer + 1];
  next.value = sum.value;
  slope.value.assign(sum.value.size(), 1.0);
  slope.error.assign(sum.value.size(), 0.0);
  local_.assign(sum.value.size(), 0.0);
  for (std::size_t i = 0; i < sum.value.size(); ++i) {
    const double x = sum.value[i], e = sum.error[i];
    if (mlp_.activation == Activation::relu) {
      next.value[i] = std::max(x, 0.0);
      slope.value[i] = x > 0 ? 1 : 0;
      if (std::abs(x) <= e) {  // either side of the kink
        local_[i] = e;
        slope.error[i] = 1;
      }
    } else if (mlp_.activation == Activation::gelu) {
      next.value[i] = gelu(x);
      slope.value[i] = gelu_slope(x);
      slope.error[i] = gelu_curvature * e + roundings(slope_roundings) + flushed(1, 16);
      local_[i] = gelu_curvature / 2 * e * e + gamma(slope_roundings, u64) * e + roundings(gelu_roundings) * (std::abs(x) + e) + flushed(1, 1);
    }
  }
  chain_.scale(slope.value);
  chain_.add(local_);
  next.error = chain_.bound();
}

// 2 (output - target) / numel: a difference, numel in fp32, the quotient and the product.
void MlpReference::loss_gradient(std::span<const float> target) {
  const Vector& output = sum_.back();
  const double factor = 2 / (static_cast<double>(batch_) * static_cast<double>(target.size()));
  delta_.value.resize(target.size());
  local_.resize(target.size());
  for (std::size_t o = 0; o < target.size(); ++o) {
    const double difference = output.value[o] - static_cast<double>(target[o]);
    delta_.value[o] = factor * difference;
    local_[o] = roundings(4) * factor * (std::abs(difference) + output.error[o]) + flushed(1, 1);
  }
  chain_.scale(std::vector<double>(target.size(), factor));
  chain_.add(local_);
  delta_.error = chain_.bound();
}

// One sample's share of a sum over the batch. Of a bias it is the difference itself: as a product with 1, which rounds nothing.
void MlpReference::collect(std::size_t layer, MlpGradients& out) const {
  const LinearLayer& l = mlp_.layers[layer];
  const Vector& x = input_[layer];
  const double each = roundings(batch_), lost = flushed(1, std::max(x.largest(), delta_.largest()));
  std::vector<double> rounded(l.in);  // per unit of the other factor's magnitude: the error of this one, and of the sum
  for (std::uint32_t i = 0; i < l.in; ++i) rounded[i] = x.error[i] + each * (std::abs(x.value[i]) + x.error[i]);
  double* value = out.value[l.weight].data();
  double* error = out.error[l.weight].data();
  for (std::uint32_t o = 0; o < l.out; ++o, value += l.in, error += l.in) {
    const double d = delta_.value[o], e = delta_.error[o], magnitude = std::abs(d) + e;
    for (std::uint32_t i = 0; i < l.in; ++i) {
      value[i] += d * x.value[i];
      error[i] += magnitude * rounded[i] + e * std::abs(x.value[i]) + lost;
    }
    if (!l.bias) continue;
    out.value[*l.bias][o] += d;
    out.error[*l.bias][o] += e + each * magnitude + lost;
  }
}

void MlpReference::backward(std::size_t layer) {
  const LinearLayer& l = mlp_.layers[layer];
  const Vector& slope = slope_[layer - 1];
  const std::vector<double>& weight = weights_[l.weight];
  std::vector<double> value(l.in, 0.0), magnitude(l.in, 0.0);
  for (std::uint32_t o = 0; o < l.out; ++o)
    for (std::uint32_t i = 0; i < l.in; ++i) {
      const double w = weight[std::size_t{o} * l.in + i];
      value[i] += w * delta_.value[o];
      magnitude[i] += std::abs(w) * (std::abs(delta_.value[o]) + delta_.error[o]);
    }
  const double lost = flushed(l.out, std::max(largest_weight_[layer], delta_.largest()));
  local_.resize(l.in);
  for (std::uint32_t i = 0; i < l.in; ++i) local_[i] = roundings(l.out) * magnitude[i] + lost;
  chain_.multiply(map_of(layer, true));
  chain_.add(local_);
  const std::vector<double> error = chain_.bound();
  // A product with 1 or 0 rounds nothing; that of the exact derivative once.
  const double once = mlp_.activation == Activation::gelu ? roundings(1) : 0.0;
  delta_.value.resize(l.in);
  for (std::uint32_t i = 0; i < l.in; ++i) {
    const double most = std::abs(value[i]) + error[i];
    delta_.value[i] = value[i] * slope.value[i];
    local_[i] = most * (slope.error[i] + once * (std::abs(slope.value[i]) + slope.error[i])) + flushed(1, std::max(most, 2.0));
  }
  chain_.scale(slope.value);
  chain_.add(local_);
  delta_.error = chain_.bound();
}

}  // namespace gradledger::ref
