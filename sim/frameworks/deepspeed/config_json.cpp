#include "sim/frameworks/deepspeed/config_json.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "sim/base/limits.h"
#include "sim/numeric/dtype_names.h"
#include "sim/scenario/schema.h"

namespace gradledger {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr const char* inert_top[] = {
    "train_batch_size",           "train_micro_batch_size_per_gpu", "steps_per_print", "wall_clock_breakdown", "dump_state", "memory_breakdown", "zero_allow_untested_optimizer",
    "zero_force_ds_cpu_optimizer"};
constexpr const char* inert_zero[] = {"allgather_bucket_size",
                                      "allgather_partitions",
                                      "stage3_param_persistence_threshold",
                                      "stage3_max_live_parameters",
                                      "stage3_max_reuse_distance",
                                      "stage3_prefetch_bucket_size",
                                      "stage3_gather_16bit_weights_on_model_save",
                                      "stage3_gather_fp16_weights_on_model_save",
                                      "load_from_fp32_weights",
                                      "elastic_checkpoint",
                                      "memory_efficient_linear",
                                      "zero_hpz_partition_size"};
constexpr std::array<const char*, 5> scaler_keys{"initial_scale_power", "loss_scale_window", "hysteresis", "consecutive_hysteresis", "min_loss_scale"};
constexpr const char* inert_offload_param[] = {"pin_memory", "buffer_count", "buffer_size", "max_in_cpu"};
constexpr const char* inert_offload[] = {"buffer_count", "fast_init", "pipeline_read", "pipeline_write", "ratio"};

template <class T>
void take(const json& from, const char* key, T& into) {
  if (const auto it = from.find(key); it != from.end()) into = it->get<T>();
}

template <class T>
void take(const json& from, const char* key, std::optional<T>& into) {
  if (const auto it = from.find(key); it != from.end() && !it->is_null()) into = it->get<T>();
}

// Element counts may be written as 5e8, but not as 1.5.
std::optional<InputError> take_count(const json& from, const char* key, std::uint64_t& into, const std::string& where) {
  const auto it = from.find(key);
  if (it == from.end()) return std::nullopt;
  const double count = it->get<double>();
  if (count != std::floor(count)) return InputError{where + "/" + key, "is " + it->dump() + "; expected a whole number of elements"};
  into = static_cast<std::uint64_t>(count);
  return std::nullopt;
}

void take_dtype(const json& from, const char* key, std::optional<Dtype>& into) {
  std::optional<std::string> name;
  take(from, key, name);
  if (name) into = gradient_dtype_of(*name);
}

template <class T>
void put(ordered_json& into, const char* key, const T& value, const T& by_default) {
  if (value != by_default) into[key] = value;
}

template <class T>
void put(ordered_json& into, const char* key, const std::optional<T>& value) {
  if (value) into[key] = *value;
}

void put_dtype(ordered_json& into, const char* key, const std::optional<Dtype>& value) {
  if (value) into[key] = name_of(*value);
}

// DeepSpeed's batch triple: train_batch_size = micro batch x accumulation steps x data-parallel ranks.
std::optional<InputError> settle_batch(const json& config, std::uint32_t ranks, const std::string& where, std::uint32_t& steps) {
  std::optional<std::uint64_t> train, micro, given;
  take(config, "train_batch_size", train);
  take(config, "train_micro_batch_size_per_gpu", micro);
  take(config, "gradient_accumulation_steps", given);
  if (given) steps = static_cast<std::uint32_t>(*given);
  if (!train || ranks == 0) return std::nullopt;
  const auto misfit = [&](const std::string& expected) { return InputError{where + "/train_batch_size", "is " + std::to_string(*train) + "; expected " + expected}; };
  if (micro && given) {
    const std::uint64_t product = *micro * *given * ranks;
    if (*train != product) return misfit(std::to_string(product) + " = train_micro_batch_size_per_gpu x gradient_accumulation_steps x data-parallel ranks");
    return std::nullopt;
  }
  const std::uint64_t divisor = micro ? *micro * ranks : static_cast<std::uint64_t>(steps) * ranks;
  if (*train % divisor != 0)
    return misfit("a multiple of " + std::to_string(divisor) +
                  (micro ? " = train_micro_batch_size_per_gpu x data-parallel ranks" : " = gradient_accumulation_steps x data-parallel ranks"));
  if (!micro) return std::nullopt;
  if (*train / divisor > limits::gradient_accumulation_steps_max)
    return misfit("at most " + std::to_string(limits::gradient_accumulation_steps_max) + " accumulation steps of " + std::to_string(divisor));
  steps = static_cast<std::uint32_t>(*train / divisor);
  return std::nullopt;
}

json inert_part(const json& config) {
  json inert = json::object();
  for (const char* key : inert_top)
    if (config.contains(key)) inert[key] = config[key];
  if (!config.contains("zero_optimization")) return inert;
  const json& zero = config["zero_optimization"];
  for (const char* key : inert_zero)
    if (zero.contains(key)) inert["zero_optimization"][key] = zero[key];
  for (const char* key : inert_offload_param)
    if (zero.contains("offload_param") && zero["offload_param"].contains(key)) inert["zero_optimization"]["offload_param"][key] = zero["offload_param"][key];
  if (!zero.contains("offload_optimizer")) return inert;
  for (const char* key : inert_offload)
    if (zero["offload_optimizer"].contains(key)) inert["zero_optimization"]["offload_optimizer"][key] = zero["offload_optimizer"][key];
  return inert;
}

std::optional<InputError> zero_from_json(const json& zero, const std::string& where, ZeroConfig& out) {
  take(zero, "stage", out.stage);
  take(zero, "contiguous_gradients", out.contiguous_gradients);
  take(zero, "reduce_scatter", out.reduce_scatter);
  take(zero, "use_multi_rank_bucket_allreduce", out.use_multi_rank_bucket_allreduce);
  if (auto error = take_count(zero, "reduce_bucket_size", out.reduce_bucket_size, where)) return error;
  take(zero, "overlap_comm", out.overlap_comm);
  take(zero, "round_robin_gradients", out.round_robin_gradients);
  take(zero, "ignore_unused_parameters", out.ignore_unused_parameters);
  if (auto error = take_count(zero, "sub_group_size", out.sub_group_size, where)) return error;
  if (zero.contains("offload_optimizer") && zero["offload_optimizer"]["device"] == "cpu") out.offload_optimizer = OffloadDevice::cpu;
  if (zero.contains("offload_optimizer")) take(zero["offload_optimizer"], "pin_memory", out.offload_pin_memory);
  // zero/config.py: DeepSpeedZeroConfig.offload_ratio_check, at 0.19.8
  if (out.stage != 3 && zero.contains("offload_optimizer") && zero["offload_optimizer"].value("ratio", 1.0) < 1.0)
    return InputError{where + "/offload_optimizer/ratio", "is refused by DeepSpeed below stage 3; expected it left out, or 1"};
  if (!zero.contains("offload_param")) return std::nullopt;
  const std::string device = zero["offload_param"]["device"];
  if (device == "nvme") return InputError{where + "/offload_param/device", "is \"nvme\", which is not modelled; expected \"none\" or \"cpu\""};
  if (device == "cpu") out.offload_param = OffloadDevice::cpu;
  return std::nullopt;
}

ordered_json fp16_to_json(const Fp16Config& config) {
  ordered_json out = ordered_json::object();
  const Fp16Config defaults;
  put(out, "enabled", config.enabled, defaults.enabled);
  put(out, "loss_scale", config.loss_scale, defaults.loss_scale);
  if (config.states_defaults) out["initial_scale_power"] = config.initial_scale_power;
  put(out, "initial_scale_power", config.initial_scale_power, defaults.initial_scale_power);
  put(out, "loss_scale_window", config.loss_scale_window, defaults.loss_scale_window);
  put(out, "hysteresis", config.hysteresis, defaults.hysteresis);
  put(out, "consecutive_hysteresis", config.consecutive_hysteresis, defaults.consecutive_hysteresis);
  put(out, "min_loss_scale", config.min_loss_scale, defaults.min_loss_scale);
  return out;
}

}  // namespace

Result<DeepSpeedConfig> config_from_json(const json& config, std::uint32_t data_parallel_ranks, const std::string& where) {
  DeepSpeedConfig out;
  if (config.contains("tensor_parallel")) take(config["tensor_parallel"], "autotp_size", out.autotp_size);
  if (auto error = settle_batch(config, data_parallel_ranks, where, out.gradient_accumulation_steps)) return *error;
  take(config, "managed_gradient_accumulation", out.managed_gradient_accumulation);
  if (config.value("gradient_allreduce_op", "mean") == "sum") out.gradient_allreduce_op = AllreduceOp::sum;
  take(config, "prescale_gradients", out.prescale_gradients);
  take(config, "gradient_predivide_factor", out.gradient_predivide_factor);
  take_dtype(config, "communication_data_type", out.communication_data_type);
  take_dtype(config, "seq_parallel_communication_data_type", out.seq_parallel_communication_data_type);
  if (config.contains("data_types")) take_dtype(config["data_types"], "grad_accum_dtype", out.grad_accum_dtype);
  take(config, "gradient_clipping", out.gradient_clipping);
  if (config.contains("bf16")) {
    take(config["bf16"], "enabled", out.bf16.enabled);
    take(config["bf16"], "immediate_grad_update", out.bf16.immediate_grad_update);
    take(config["bf16"], "check_grad_overflow", out.bf16.check_grad_overflow);
  }
  if (config.contains("fp16")) {
    const json& fp16 = config["fp16"];
    take(fp16, "enabled", out.fp16.enabled);
    take(fp16, "loss_scale", out.fp16.loss_scale);
    take(fp16, "initial_scale_power", out.fp16.initial_scale_power);
    take(fp16, "loss_scale_window", out.fp16.loss_scale_window);
    take(fp16, "hysteresis", out.fp16.hysteresis);
    take(fp16, "consecutive_hysteresis", out.fp16.consecutive_hysteresis);
    take(fp16, "min_loss_scale", out.fp16.min_loss_scale);
    out.fp16.states_defaults =
        out.fp16.enabled && out.fp16.has_defaults() && std::any_of(scaler_keys.begin(), scaler_keys.end(), [&](const char* key) { return fp16.contains(key); });
  }
  if (out.bf16.enabled && out.fp16.enabled) return InputError{where + "/fp16/enabled", "is true, and so is bf16.enabled; expected one of the two"};
  if (config.contains("zero_optimization"))
    if (auto error = zero_from_json(config["zero_optimization"], where + "/zero_optimization", out.zero)) return *error;
  out.inert = inert_part(config).dump();
  return out;
}

ordered_json config_to_json(const DeepSpeedConfig& config) {
  const DeepSpeedConfig defaults;
  const json inert = json::parse(config.inert);
  ordered_json out = ordered_json::object();
  out["gradient_accumulation_steps"] = config.gradient_accumulation_steps;
  for (const auto& [key, value] : inert.items())
    if (key != "zero_optimization") out[key] = value;
  put(out, "managed_gradient_accumulation", config.managed_gradient_accumulation, defaults.managed_gradient_accumulation);
  if (config.gradient_allreduce_op == AllreduceOp::sum) out["gradient_allreduce_op"] = "sum";
  put(out, "prescale_gradients", config.prescale_gradients, defaults.prescale_gradients);
  put(out, "gradient_predivide_factor", config.gradient_predivide_factor, defaults.gradient_predivide_factor);
  put_dtype(out, "communication_data_type", config.communication_data_type);
  put_dtype(out, "seq_parallel_communication_data_type", config.seq_parallel_communication_data_type);
  if (config.autotp_size > 0) out["tensor_parallel"]["autotp_size"] = config.autotp_size;
  if (config.grad_accum_dtype) put_dtype(out["data_types"], "grad_accum_dtype", config.grad_accum_dtype);
  put(out, "gradient_clipping", config.gradient_clipping);
  ordered_json bf16 = ordered_json::object();
  put(bf16, "enabled", config.bf16.enabled, false);
  put(bf16, "immediate_grad_update", config.bf16.immediate_grad_update);
  put(bf16, "check_grad_overflow", config.bf16.check_grad_overflow);
  if (!bf16.empty()) out["bf16"] = bf16;
  const ordered_json fp16 = fp16_to_json(config.fp16);
  if (!fp16.empty()) out["fp16"] = fp16;

  ordered_json zero = ordered_json::object();
  zero["stage"] = config.zero.stage;
  const ZeroConfig& z = defaults.zero;
  put(zero, "contiguous_gradients", config.zero.contiguous_gradients, z.contiguous_gradients);
  put(zero, "reduce_scatter", config.zero.reduce_scatter, z.reduce_scatter);
  put(zero, "use_multi_rank_bucket_allreduce", config.zero.use_multi_rank_bucket_allreduce, z.use_multi_rank_bucket_allreduce);
  put(zero, "reduce_bucket_size", config.zero.reduce_bucket_size, z.reduce_bucket_size);
  put(zero, "overlap_comm", config.zero.overlap_comm);
  put(zero, "round_robin_gradients", config.zero.round_robin_gradients, z.round_robin_gradients);
  put(zero, "ignore_unused_parameters", config.zero.ignore_unused_parameters, z.ignore_unused_parameters);
  put(zero, "sub_group_size", config.zero.sub_group_size, z.sub_group_size);
  const json inert_zero_part = inert.value("zero_optimization", json::object());
  ordered_json offload = ordered_json::object();
  if (config.offloads_optimizer()) offload["device"] = "cpu";
  else if (inert_zero_part.contains("offload_optimizer") || config.zero.offload_pin_memory) offload["device"] = "none";
  put(offload, "pin_memory", config.zero.offload_pin_memory);
  ordered_json offload_param = inert_zero_part.value("offload_param", ordered_json::object());
  if (!offload_param.empty() || config.zero.offload_param == OffloadDevice::cpu) offload_param["device"] = config.zero.offload_param == OffloadDevice::cpu ? "cpu" : "none";
  if (!offload_param.empty()) zero["offload_param"] = offload_param;
  for (const auto& [key, value] : inert_zero_part.items()) {
    if (key == "offload_param") continue;
    if (key != "offload_optimizer") zero[key] = value;
    else
      for (const auto& [inner, inner_value] : value.items()) offload[inner] = inner_value;
  }
  if (!offload.empty()) zero["offload_optimizer"] = offload;
  out["zero_optimization"] = zero;
  return out;
}

std::string DeepSpeedConfig::json_text() const { return config_to_json(*this).dump(); }

Result<DeepSpeedConfig> parse_deepspeed_config(const nlohmann::json& config, std::uint32_t world_size, const std::string& where) {
  if (auto problem = check_against_part("/definitions/deepspeed_config", config, where)) return *problem;
  return config_from_json(config, world_size, where);
}

}  // namespace gradledger
