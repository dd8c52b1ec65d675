#include "sim/frameworks/torch/ddp/config_json.h"

#include <array>
#include <utility>

#include "sim/scenario/schema.h"

namespace gradledger::torch {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr std::array<std::pair<const char*, CommHook>, 8> hooks{{{"allreduce", CommHook::allreduce},
                                                                 {"fp16_compress", CommHook::fp16_compress},
                                                                 {"bf16_compress", CommHook::bf16_compress},
                                                                 {"fp16_wrapper", CommHook::fp16_wrapper},
                                                                 {"bf16_wrapper", CommHook::bf16_wrapper},
                                                                 {"noop", CommHook::noop},
                                                                 {"sum", CommHook::sum},
                                                                 {"powerSGD", CommHook::power_sgd}}};

constexpr std::array<std::pair<const char*, bool DdpConfig::*>, 9> flags{{{"find_unused_parameters", &DdpConfig::find_unused_parameters},
                                                                          {"gradient_as_bucket_view", &DdpConfig::gradient_as_bucket_view},
                                                                          {"static_graph", &DdpConfig::static_graph},
                                                                          {"batched_grad_copy", &DdpConfig::batched_grad_copy},
                                                                          {"lazy_bucket_allocation", &DdpConfig::lazy_bucket_allocation},
                                                                          {"skip_all_reduce_unused_params", &DdpConfig::skip_all_reduce_unused_params},
                                                                          {"optimizer_in_backward", &DdpConfig::optimizer_in_backward},
                                                                          {"post_accumulate_grad_hook", &DdpConfig::post_accumulate_grad_hook},
                                                                          {"backward_in_forward", &DdpConfig::backward_in_forward}}};

PowerSgdConfig power_sgd_from_json(const json& object) {
  PowerSgdConfig out;
  out.matrix_approximation_rank = object.value("matrix_approximation_rank", out.matrix_approximation_rank);
  out.start_powerSGD_iter = object.value("start_powerSGD_iter", out.start_powerSGD_iter);
  out.min_compression_rate = object.value("min_compression_rate", out.min_compression_rate);
  out.use_error_feedback = object.value("use_error_feedback", out.use_error_feedback);
  out.warm_start = object.value("warm_start", out.warm_start);
  return out;
}

ordered_json power_sgd_to_json(const PowerSgdConfig& config) {
  return {{"matrix_approximation_rank", config.matrix_approximation_rank},
          {"start_powerSGD_iter", config.start_powerSGD_iter},
          {"min_compression_rate", config.min_compression_rate},
          {"use_error_feedback", config.use_error_feedback},
          {"warm_start", config.warm_start}};
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
  if (object.contains("PowerSGDState") && out.comm_hook != CommHook::power_sgd)
    return InputError{where + "/PowerSGDState", "is the state of a hook that is not registered; expected comm_hook \"powerSGD\" beside it"};
  if (out.comm_hook == CommHook::power_sgd) out.power_sgd = power_sgd_from_json(object.value("PowerSGDState", json::object()));
  if (object.contains("rows")) out.rows = object["rows"].get<std::map<std::string, std::uint64_t>>();
  out.plain = object.value("plain", out.plain);
  if (object.contains("delay_all_reduce")) out.delay_all_reduce = DelayedAllReduce{object["delay_all_reduce"]["params"], object["delay_all_reduce"]["hook"]};
  if (!object.contains("grad_scaler")) return out;
  auto scaler = grad_scaler_from_json(object["grad_scaler"], where + "/grad_scaler");
  if (!scaler) return scaler.error();
  out.grad_scaler = std::move(scaler).value();
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
  if (config.power_sgd) out["PowerSGDState"] = power_sgd_to_json(*config.power_sgd);
  if (!config.rows.empty()) out["rows"] = config.rows;
  if (!config.plain.empty()) out["plain"] = config.plain;
  if (config.delay_all_reduce) out["delay_all_reduce"] = {{"params", config.delay_all_reduce->parameters}, {"hook", config.delay_all_reduce->hook}};
  if (config.grad_scaler) out["grad_scaler"] = grad_scaler_to_json(*config.grad_scaler);
  return out;
}

std::string DdpConfig::json_text() const { return ddp_config_to_json(*this).dump(); }

}  // namespace gradledger::torch
