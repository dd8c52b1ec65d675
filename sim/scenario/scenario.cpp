#include "sim/scenario/scenario.h"

#include <algorithm>
#include <cmath>

namespace gradledger {

namespace {

// As values of a file: "nan" is "nan".
bool same_elements(const std::vector<double>& a, const std::vector<double>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](double x, double y) { return x == y || (std::isnan(x) && std::isnan(y)); });
}

bool same_given(const GivenValues& a, const GivenValues& b) {
  const auto same_ranks = [](const auto& x, const auto& y) { return std::equal(x.begin(), x.end(), y.begin(), y.end(), same_elements); };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), same_ranks);
}

}  // namespace

bool Gradients::operator==(const Gradients& other) const {
  const bool same_values = values == other.values || (values && other.values && same_given(*values, *other.values));
  return kind == other.kind && seed == other.seed && samples_per_micro_batch == other.samples_per_micro_batch && file == other.file &&
         same_values && mlp == other.mlp;
}

OptimizerConfig EngineConfig::optimizer_of(const OptimizerGroup& group) const {
  OptimizerConfig out = optimizer;
  out.learning_rate = group.learning_rate.value_or(optimizer.learning_rate);
  out.weight_decay = group.weight_decay.value_or(optimizer.weight_decay);
  return out;
}

OptimizerConfig EngineConfig::optimizer_of(std::uint32_t parameter) const {
  for (const OptimizerGroup& group : param_groups)
    if (std::find(group.parameters.begin(), group.parameters.end(), parameter) != group.parameters.end()) return optimizer_of(group);
  return optimizer;
}

std::uint64_t Scenario::numel() const {
  std::uint64_t sum = 0;
  for (const Parameter& p : parameters) sum += p.numel;
  return sum;
}

std::uint32_t Scenario::divisor() const { return contract.divide_by.value_or(engine.config.gradient_accumulation_steps); }

double Scenario::gradient_clipping() const {
  if (engine.config.gradient_clipping) return *engine.config.gradient_clipping;
  const auto point = point_named(engine.as_of.base, "/engine/as_of");
  expects(point.ok(), "a scenario whose as_of was not checked");
  return point->contains(Change::pr8068) ? 1.0 : 0.0;
}

// Stage 0 has a scaler of its own, that of FP16_Optimizer. #6976 gave its rule of growth to the one of ZeRO, which doubled a step earlier.
LossScalePolicy Scenario::loss_scale_policy() const {
  if (engine.config.zero.stage == 0) return {.hysteresis = 1, .growth_lag = 1};
  const auto point = point_named(engine.as_of.base, "/engine/as_of");
  expects(point.ok(), "a scenario whose as_of was not checked");
  return {.hysteresis = engine.config.fp16.hysteresis, .growth_lag = point->contains(Change::pr6976) ? 1u : 0u};
}

// Until #7515 bf16 without ZeRO had a wrapper of its own, which accumulates in fp32.
Dtype Scenario::grad_accum_dtype() const {
  if (engine.config.grad_accum_dtype) return *engine.config.grad_accum_dtype;
  if (model_dtype != Dtype::bfloat16 || engine.config.zero.stage > 0) return model_dtype;
  const auto point = point_named(engine.as_of.base, "/engine/as_of");
  expects(point.ok(), "a scenario whose as_of was not checked");
  return point->contains(Change::pr7515) ? model_dtype : Dtype::float32;
}

Dtype Scenario::communication_dtype() const { return engine.config.communication_data_type.value_or(model_dtype); }

double odd_part(double factor) {
  int exponent;
  double odd = std::frexp(factor, &exponent);
  while (odd != std::trunc(odd)) odd *= 2;
  return odd;
}

std::string exact_factors() {
  return "from 1/" + std::to_string(static_cast<int>(1 / least_factor)) + " to " + std::to_string(static_cast<int>(largest_factor)) + ", an odd number up to " +
         std::to_string(static_cast<int>(odd_factor_max)) + " times a power of two";
}

bool exact_factor(double factor) {
  return std::isfinite(factor) && factor >= least_factor && factor <= largest_factor && odd_part(factor) <= odd_factor_max;
}

}  // namespace gradledger
