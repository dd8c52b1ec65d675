#include "sim/frameworks/torch/ddp/config_json.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "sim/base/limits.h"

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

constexpr double megabytes_max = 1e6;
constexpr double scale_max = 1e30;

Problem expected(const std::string& where, const json& value, const std::string& what) { return InputError{where, "is " + value.dump() + "; expected " + what}; }

Problem take_positive(const json& value, double most, const std::string& where, double& into) {
  if (!value.is_number() || !(value.get<double>() > 0) || value.get<double>() > most) return expected(where, value, "a number above 0");
  into = value.get<double>();
  return std::nullopt;
}

Problem take_caps(const json& value, const std::string& where, std::vector<double>& into) {
  if (!value.is_array() || value.empty() || value.size() > limits::parameters_max) return expected(where, value, "a list of sizes in MiB");
  for (std::size_t i = 0; i < value.size(); ++i)
    if (Problem problem = take_positive(value[i], megabytes_max, where + "/" + std::to_string(i), into.emplace_back())) return problem;
  return std::nullopt;
}

Problem take_hook(const json& value, const std::string& where, CommHook& into) {
  const auto named = std::find_if(hooks.begin(), hooks.end(), [&](const auto& hook) { return value == hook.first; });
  if (named == hooks.end()) {
    std::string names;
    for (const auto& [name, hook] : hooks) names += (names.empty() ? "\"" : ", \"") + std::string(name) + "\"";
    return expected(where, value, "one of " + names);
  }
  into = named->second;
  return std::nullopt;
}

Problem take_delay(const json& value, const std::string& where, std::optional<DelayedAllReduce>& into) {
  const bool whole = value.is_object() && value.size() == 2 && value.contains("params") && value.contains("hook");
  if (!whole) return expected(where, value, "{\"params\": [names], \"hook\": name}");
  const json& names = value["params"];
  if (!names.is_array() || names.empty() || !std::all_of(names.begin(), names.end(), [](const json& name) { return name.is_string(); }))
    return expected(where + "/params", names, "names of parameters");
  if (!value["hook"].is_string()) return expected(where + "/hook", value["hook"], "the name of a parameter");
  into = DelayedAllReduce{names.get<std::vector<std::string>>(), value["hook"].get<std::string>()};
  return std::nullopt;
}

Problem take_scaler(const json& value, const std::string& where, std::optional<GradScalerConfig>& into) {
  if (!value.is_object()) return expected(where, value, "an object");
  into.emplace();
  for (const auto& [key, given] : value.items()) {
    const std::string here = where + "/" + key;
    if (key == "growth_interval") {
      if (!given.is_number_unsigned() || given == 0 || given.get<std::uint64_t>() > limits::events_max) return expected(here, given, "a number of steps above 0");
      into->growth_interval = given.get<std::uint32_t>();
      continue;
    }
    double* number = key == "init_scale" ? &into->init_scale : key == "growth_factor" ? &into->growth_factor : key == "backoff_factor" ? &into->backoff_factor : nullptr;
    if (!number) return InputError{here, "is no option of GradScaler; expected init_scale, growth_factor, backoff_factor or growth_interval"};
    if (Problem problem = take_positive(given, scale_max, here, *number)) return problem;
    // Scaling and unscaling must not round, or the gradient would not be the one that the contract has.
    if (std::exp2(std::round(std::log2(*number))) != *number) return expected(here, given, "a power of two");
  }
  return std::nullopt;
}

Problem take(const std::string& key, const json& value, const std::string& where, DdpConfig& into) {
  for (const auto& [name, member] : flags)
    if (key == name) {
      if (!value.is_boolean()) return expected(where, value, "true or false");
      into.*member = value.get<bool>();
      return std::nullopt;
    }
  if (key == "bucket_cap_mb") return take_positive(value, megabytes_max, where, into.bucket_cap_mb.emplace());
  if (key == "bucket_cap_mb_list") return take_caps(value, where, into.bucket_cap_mb_list);
  if (key == "comm_hook") return take_hook(value, where, into.comm_hook);
  if (key == "delay_all_reduce") return take_delay(value, where, into.delay_all_reduce);
  if (key == "grad_scaler") return take_scaler(value, where, into.grad_scaler);
  return InputError{where, "is no option of DistributedDataParallel that is modelled"};
}

}  // namespace

Result<DdpConfig> ddp_config_from_json(const json& object, const std::string& where) {
  if (!object.is_object()) return InputError{where, "is no object; expected the options of DistributedDataParallel"};
  DdpConfig out;
  for (const auto& [key, value] : object.items())
    if (Problem problem = take(key, value, where + "/" + key, out)) return *problem;
  if (out.bucket_cap_mb && !out.bucket_cap_mb_list.empty()) return InputError{where + "/bucket_cap_mb_list", "is given, and so is bucket_cap_mb; expected one of the two"};
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
