#include "sim/frameworks/torch/ddp/config_json.h"

#include <array>
#include <cmath>
#include <utility>

#include "sim/scenario/schema.h"

namespace gradledger::torch {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;
using Problem = std::optional<InputError>;

constexpr std::array<std::pair<const char*, CommHook>, 6> hooks{{{"allreduce", CommHook::allreduce},
                                                                 {"fp16_compress", CommHook::fp16_compress},
                                                                 {"bf16_compress", CommHook::bf16_compress},
                                                                 {"fp16_wrapper", CommHook::fp16_wrapper},
                                                                 {"bf16_wrapper", CommHook::bf16_wrapper},
                                                                 {"noop", CommHook::noop}}};

constexpr std::array<std::pair<const char*, bool DdpConfig::*>, 6> flags{{{"find_unused_parameters", &DdpConfig::find_unused_parameters},
                                                                          {"gradient_as_bucket_view", &DdpConfig::gradient_as_bucket_view},
                                                                          {"static_graph", &DdpConfig::static_graph},
                                                                          {"batched_grad_copy", &DdpConfig::batched_grad_copy},
                                                                          {"skip_all_reduce_unused_params", &DdpConfig::skip_all_reduce_unused_params},
                                                                          {"optimizer_in_backward", &DdpConfig::optimizer_in_backward}}};

// Scaling and unscaling must not round, or the gradient would not be the one that the contract has.
Problem take_power_of_two(const json& scaler, const char* key, const std::string& where, double& into) {
  if (!scaler.contains(key)) return std::nullopt;
  into = scaler[key].get<double>();
  if (std::exp2(std::round(std::log2(into))) == into) return std::nullopt;
  return InputError{where + "/" + key, "is " + scaler[key].dump() + "; expected a power of two"};
}

Problem take_scaler(const json& value, const std::string& where, GradScalerConfig& into) {
  if (Problem problem = take_power_of_two(value, "init_scale", where, into.init_scale)) return problem;
  if (Problem problem = take_power_of_two(value, "growth_factor", where, into.growth_factor)) return problem;
  if (Problem problem = take_power_of_two(value, "backoff_factor", where, into.backoff_factor)) return problem;
  into.growth_interval = value.value("growth_interval", into.growth_interval);
  return std::nullopt;
}

}  // namespace

Result<DdpConfig> ddp_config_from_json(const json& object, const std::string& where) {
  if (auto problem = check_against_part("/definitions/ddp_config", object, where)) return *problem;
  if (object.contains("bucket_cap_mb") && object.contains("bucket_cap_mb_list"))
    return InputError{where + "/bucket_cap_mb_list", "is given, and so is bucket_cap_mb; expected one of the two"};
  DdpConfig out;
  if (object.contains("bucket_cap_mb")) out.bucket_cap_mb = object["bucket_cap_mb"].get<double>();
  out.bucket_cap_mb_list = object.value("bucket_cap_mb_list", out.bucket_cap_mb_list);
  for (const auto& [name, member] : flags) out.*member = object.value(name, false);
  for (const auto& [name, hook] : hooks)
    if (object.value("comm_hook", "") == name) out.comm_hook = hook;
  if (object.contains("delay_all_reduce")) out.delay_all_reduce = DelayedAllReduce{object["delay_all_reduce"]["params"], object["delay_all_reduce"]["hook"]};
  if (!object.contains("grad_scaler")) return out;
  if (Problem problem = take_scaler(object["grad_scaler"], where + "/grad_scaler", out.grad_scaler.emplace())) return *problem;
  return out;
}

ordered_json ddp_config_to_json(const DdpConfig& config) {
  ordered_json out = ordered_json::object();
  if (config.bucket_cap_mb) out["bucket_cap_mb"] = *config.bucket_cap_mb;
  if (!config.bucket_cap_mb_list.empty()) out["bucket_cap_mb_list"] = config.bucket_cap_mb_list;
  for (const auto& [name, member] : flags)
    if (config.*member) out[name] = true;
  for (const auto& [name, hook] : hooks)
    if (config.comm_hook == hook) out["comm_hook"] = name;
  if (config.delay_all_reduce) out["delay_all_reduce"] = {{"params", config.delay_all_reduce->parameters}, {"hook", config.delay_all_reduce->hook}};
  if (const auto& scaler = config.grad_scaler) {
    constexpr GradScalerConfig by_default;
    ordered_json& object = out["grad_scaler"] = ordered_json::object();
    object["init_scale"] = scaler->init_scale;
    if (scaler->growth_factor != by_default.growth_factor) object["growth_factor"] = scaler->growth_factor;
    if (scaler->backoff_factor != by_default.backoff_factor) object["backoff_factor"] = scaler->backoff_factor;
    if (scaler->growth_interval != by_default.growth_interval) object["growth_interval"] = scaler->growth_interval;
  }
  return out;
}

std::string DdpConfig::json_text() const { return ddp_config_to_json(*this).dump(); }

}  // namespace gradledger::torch
