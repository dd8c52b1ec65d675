#include "sim/frameworks/megatron/config_json.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "sim/scenario/schema.h"

namespace gradledger::megatron {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;
using Problem = std::optional<InputError>;

template <class T>
using Flag = std::pair<const char*, bool T::*>;

constexpr std::array<Flag<DdpOptions>, 7> ddp_flags{{{"grad_reduce_in_fp32", &DdpOptions::grad_reduce_in_fp32},
                                                     {"overlap_grad_reduce", &DdpOptions::overlap_grad_reduce},
                                                     {"overlap_param_gather", &DdpOptions::overlap_param_gather},
                                                     {"use_distributed_optimizer", &DdpOptions::use_distributed_optimizer},
                                                     {"check_for_nan_in_grad", &DdpOptions::check_for_nan_in_grad},
                                                     {"average_in_collective", &DdpOptions::average_in_collective},
                                                     {"pad_buckets_for_high_nccl_busbw", &DdpOptions::pad_buckets_for_high_nccl_busbw}}};
constexpr std::array<Flag<ModelOptions>, 2> model_flags{
    {{"calculate_per_token_loss", &ModelOptions::calculate_per_token_loss}, {"sequence_parallel", &ModelOptions::sequence_parallel}}};
constexpr std::array<Flag<Attributes>, 7> attribute_flags{{{"sequence_parallel", &Attributes::sequence_parallel},
                                                           {"tensor_model_parallel", &Attributes::tensor_model_parallel},
                                                           {"average_gradients_across_tp_domain", &Attributes::average_gradients_across_tp_domain},
                                                           {"shared_embedding", &Attributes::shared_embedding},
                                                           {"shared", &Attributes::shared},
                                                           {"gradient_accumulation_fusion", &Attributes::gradient_accumulation_fusion},
                                                           {"used_twice", &Attributes::used_twice}}};

template <class T, std::size_t n>
void take_flags(const std::array<Flag<T>, n>& flags, const json& object, T& into) {
  for (const auto& [name, member] : flags) into.*member = object.value(name, into.*member);
}

template <class T, std::size_t n>
void put_flags(const std::array<Flag<T>, n>& flags, const T& from, ordered_json& object) {
  for (const auto& [name, member] : flags)
    if (from.*member) object[name] = true;
}

// Scaling and unscaling must not round, or the gradient would not be the one that the contract has.
Problem take_power_of_two(const json& object, const char* key, const std::string& where, double& into) {
  if (!object.contains(key)) return std::nullopt;
  into = object[key].get<double>();
  if (std::exp2(std::round(std::log2(into))) == into) return std::nullopt;
  return InputError{where + "/" + key, "is " + object[key].dump() + "; expected a power of two"};
}

Problem take_optimizer(const json& object, const std::string& where, OptimizerOptions& into) {
  into.clip_grad = object.value("clip_grad", into.clip_grad);
  double scale = 1;
  if (Problem problem = take_power_of_two(object, "loss_scale", where, scale)) return problem;
  if (object.contains("loss_scale")) into.loss_scale = scale;
  if (Problem problem = take_power_of_two(object, "initial_loss_scale", where, into.initial_loss_scale)) return problem;
  if (Problem problem = take_power_of_two(object, "min_loss_scale", where, into.min_loss_scale)) return problem;
  into.loss_scale_window = object.value("loss_scale_window", into.loss_scale_window);
  into.hysteresis = object.value("hysteresis", into.hysteresis);
  into.log_num_zeros_in_grad = object.value("log_num_zeros_in_grad", into.log_num_zeros_in_grad);
  return std::nullopt;
}

ordered_json optimizer_to_json(const OptimizerOptions& options) {
  const OptimizerOptions by_default;
  ordered_json out = ordered_json::object();
  if (options.clip_grad != by_default.clip_grad) out["clip_grad"] = options.clip_grad;
  if (options.loss_scale) out["loss_scale"] = *options.loss_scale;
  if (options.initial_loss_scale != by_default.initial_loss_scale) out["initial_loss_scale"] = options.initial_loss_scale;
  if (options.min_loss_scale != by_default.min_loss_scale) out["min_loss_scale"] = options.min_loss_scale;
  if (options.loss_scale_window != by_default.loss_scale_window) out["loss_scale_window"] = options.loss_scale_window;
  if (options.hysteresis != by_default.hysteresis) out["hysteresis"] = options.hysteresis;
  if (options.log_num_zeros_in_grad) out["log_num_zeros_in_grad"] = true;
  return out;
}

ScheduleOptions schedule_from_json(const json& object) {
  ScheduleOptions out;
  out.num_microbatches = object["num_microbatches"].get<std::uint32_t>();
  if (object.value("loss", "mean") != "mean") out.loss = LossReturns::sum_and_tokens;
  out.grad_sync_func = object.value("grad_sync_func", false);
  if (object.contains("model_chunks")) out.model_chunks = object["model_chunks"].get<std::vector<std::vector<std::string>>>();
  if (object.contains("microbatch_group_size_per_vp_stage")) out.microbatch_group_size_per_vp_stage = object["microbatch_group_size_per_vp_stage"].get<std::uint32_t>();
  return out;
}

void put_part(ordered_json& out, const char* key, ordered_json part) {
  if (!part.empty()) out[key] = std::move(part);
}

}  // namespace

Result<MegatronConfig> megatron_config_from_json(const json& object, const std::string& where) {
  if (auto problem = check_against_part("/definitions/megatron_config", object, where)) return *problem;
  MegatronConfig out;
  static const json none = json::object();
  const auto part = [&](const char* key) -> const json& { return object.contains(key) ? object[key] : none; };
  const json& ddp = part("ddp");
  take_flags(ddp_flags, ddp, out.ddp);
  out.ddp.num_distributed_optimizer_instances = ddp.value("num_distributed_optimizer_instances", 1u);
  if (ddp.contains("bucket_size")) out.ddp.bucket_size = ddp["bucket_size"].get<std::uint64_t>();
  if (Problem problem = take_optimizer(part("optimizer_config"), where + "/optimizer_config", out.optimizer)) return *problem;
  take_flags(model_flags, part("model"), out.model);
  for (const auto& [name, names] : part("parameters").items()) {
    Attributes& attributes = out.parameters[name];
    for (const auto& [attribute, member] : attribute_flags)
      for (const json& given : names) attributes.*member |= given == attribute;
  }
  if (!object.contains("schedule")) return out;
  const json& schedule = object["schedule"];
  out.schedule = schedule_from_json(schedule);
  return out;
}

namespace {

ordered_json schedule_to_json(const ScheduleOptions& schedule) {
  ordered_json out = {{"num_microbatches", schedule.num_microbatches}, {"loss", schedule.loss == LossReturns::mean ? "mean" : "sum_and_tokens"}};
  if (schedule.grad_sync_func) out["grad_sync_func"] = true;
  if (schedule.interleaved()) out["model_chunks"] = schedule.model_chunks;
  if (schedule.microbatch_group_size_per_vp_stage) out["microbatch_group_size_per_vp_stage"] = *schedule.microbatch_group_size_per_vp_stage;
  return out;
}

}  // namespace

ordered_json megatron_config_to_json(const MegatronConfig& config) {
  ordered_json out = ordered_json::object();
  ordered_json ddp = ordered_json::object(), model = ordered_json::object(), parameters = ordered_json::object();
  put_flags(ddp_flags, config.ddp, ddp);
  if (config.ddp.num_distributed_optimizer_instances != 1) ddp["num_distributed_optimizer_instances"] = config.ddp.num_distributed_optimizer_instances;
  if (config.ddp.bucket_size) ddp["bucket_size"] = *config.ddp.bucket_size;
  put_flags(model_flags, config.model, model);
  for (const auto& [name, attributes] : config.parameters) {
    parameters[name] = ordered_json::array();
    for (const auto& [attribute, member] : attribute_flags)
      if (attributes.*member) parameters[name].push_back(attribute);
  }
  put_part(out, "ddp", std::move(ddp));
  put_part(out, "optimizer_config", optimizer_to_json(config.optimizer));
  put_part(out, "model", std::move(model));
  put_part(out, "parameters", std::move(parameters));
  if (config.schedule) out["schedule"] = schedule_to_json(*config.schedule);
  return out;
}

std::uint32_t ScheduleOptions::chunk_of(const std::string& parameter) const {
  for (std::uint32_t chunk = 0; chunk < model_chunks.size(); ++chunk)
    if (std::find(model_chunks[chunk].begin(), model_chunks[chunk].end(), parameter) != model_chunks[chunk].end()) return chunk;
  return 0;
}

std::string MegatronConfig::json_text() const { return megatron_config_to_json(*this).dump(); }

}  // namespace gradledger::megatron
