#include "sim/frameworks/torch/grad_scaler.h"

#include <cmath>

#include <nlohmann/json.hpp>

namespace gradledger::torch {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

// Scaling and unscaling must not round, or the gradient would not be the one that the contract has.
std::optional<InputError> take_power_of_two(const json& scaler, const char* key, const std::string& where, double& into) {
  if (!scaler.contains(key)) return std::nullopt;
  into = scaler[key].get<double>();
  if (std::exp2(std::round(std::log2(into))) == into) return std::nullopt;
  return InputError{where + "/" + key, "is " + scaler[key].dump() + "; expected a power of two"};
}

}  // namespace

Result<GradScalerConfig> grad_scaler_from_json(const json& object, const std::string& where) {
  GradScalerConfig out;
  if (auto problem = take_power_of_two(object, "init_scale", where, out.init_scale)) return *problem;
  if (auto problem = take_power_of_two(object, "growth_factor", where, out.growth_factor)) return *problem;
  if (auto problem = take_power_of_two(object, "backoff_factor", where, out.backoff_factor)) return *problem;
  out.growth_interval = object.value("growth_interval", out.growth_interval);
  return out;
}

ordered_json grad_scaler_to_json(const GradScalerConfig& config) {
  constexpr GradScalerConfig by_default;
  ordered_json object = ordered_json::object();
  object["init_scale"] = config.init_scale;
  if (config.growth_factor != by_default.growth_factor) object["growth_factor"] = config.growth_factor;
  if (config.backoff_factor != by_default.backoff_factor) object["backoff_factor"] = config.backoff_factor;
  if (config.growth_interval != by_default.growth_interval) object["growth_interval"] = config.growth_interval;
  return object;
}

}  // namespace gradledger::torch
