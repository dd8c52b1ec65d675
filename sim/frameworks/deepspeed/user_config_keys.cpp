#include "sim/frameworks/deepspeed/user_config_keys.h"

#include <algorithm>
#include <array>

namespace gradledger::deepspeed {
namespace {

using nlohmann::json;

// From docs/_pages/config-json.md and runtime/config.py, runtime/zero/config.py, runtime/zero/offload_config.py, at 0.19.8.
constexpr std::string_view inert[] = {
    "/$schema",
    "/_comment",
    "/comment",
    "/steps_per_print",
    "/wall_clock_breakdown",
    "/dump_state",
    "/memory_breakdown",
    "/zero_allow_untested_optimizer",
    "/zero_force_ds_cpu_optimizer",
    "/tensor_parallel/dtype",
    "/tensor_parallel/injection_policy_tuple",
    "/tensor_parallel/keep_module_on_host",
    "/tensor_parallel/kernel_inject",
    "/tensor_parallel/partition_config",
    "/tensor_parallel/preset_model",
    "/tensor_parallel/replace_with_kernel_inject",
    "/tensor_parallel/tensor_parallel",
    "/tensor_parallel/tp",
    "/tensor_parallel/tp_overlap_comm",
    "/tensor_parallel/vocab_parallel_ce_backend",
    "/tensor_parallel/vocab_parallel_lm_head",
    "/scheduler",
    "/tensorboard",
    "/wandb",
    "/comet",
    "/csv_monitor",
    "/monitor_config",
    "/flops_profiler",
    "/comms_logger",
    "/autotuning",
    "/aio",
    "/activation_checkpointing",
    "/checkpoint",
    "/load_universal_checkpoint",
    "/use_data_before_expert_parallelism",
    "/dataloader_drop_last",
    "/data_efficiency",
    "/curriculum_learning",
    "/data_types/params_dtype",
    "/disable_allgather",
    "/graph_harvesting",
    "/hybrid_engine",
    "/nebula",
    "/timers",
    "/use_node_local_storage",
    "/vocabulary_size",
    "/zero_optimization/allgather_bucket_size",
    "/zero_optimization/allgather_partitions",
    "/zero_optimization/stage3_param_persistence_threshold",
    "/zero_optimization/stage3_model_persistence_threshold",
    "/zero_optimization/param_persistence_threshold",
    "/zero_optimization/model_persistence_threshold",
    "/zero_optimization/stage3_max_live_parameters",
    "/zero_optimization/stage3_max_reuse_distance",
    "/zero_optimization/stage3_prefetch_bucket_size",
    "/zero_optimization/prefetch_bucket_size",
    "/zero_optimization/max_live_parameters",
    "/zero_optimization/max_reuse_distance",
    "/zero_optimization/stage3_gather_16bit_weights_on_model_save",
    "/zero_optimization/stage3_gather_fp16_weights_on_model_save",
    "/zero_optimization/gather_16bit_weights_on_model_save",
    "/zero_optimization/stage3_module_granularity_threshold",
    "/zero_optimization/module_granularity_threshold",
    "/zero_optimization/stage3_use_all_reduce_for_fetch_params",
    "/zero_optimization/use_all_reduce_for_fetch_params",
    "/zero_optimization/stage3_allgather_sequential",
    "/zero_optimization/allgather_sequential",
    "/zero_optimization/load_from_fp32_weights",
    "/zero_optimization/elastic_checkpoint",
    "/zero_optimization/legacy_stage1",
    "/zero_optimization/memory_efficient_linear",
    "/zero_optimization/override_module_apply",
    "/zero_optimization/log_trace_cache_warnings",
    "/zero_optimization/pipeline_loading_checkpoint",
    "/zero_optimization/enable_sanity_checks",
    "/zero_optimization/zero_quantized_nontrainable_weights",
    "/zero_optimization/mics_hierarchical_params_gather",
    "/zero_optimization/leaf_module",
    "/zero_optimization/offload_optimizer/buffer_count",
    "/zero_optimization/offload_optimizer/fast_init",
    "/zero_optimization/offload_optimizer/pipeline",
    "/zero_optimization/offload_optimizer/pipeline_read",
    "/zero_optimization/offload_optimizer/pipeline_write",
    "/zero_optimization/offload_optimizer/nvme_path",
    "/zero_optimization/offload_param/pin_memory",
    "/zero_optimization/offload_param/buffer_count",
    "/zero_optimization/offload_param/buffer_size",
    "/zero_optimization/offload_param/max_in_cpu",
    "/zero_optimization/offload_param/nvme_path",
};

bool is_on(const json& value) {
  if (value.is_boolean()) return value.get<bool>();
  if (value.is_object()) return value.value("enabled", true) == true && !value.empty();
  return !value.is_null();
}
bool above_one(const json& value) { return value.is_number() && value.get<double>() > 1; }
bool above_zero(const json& value) { return value.is_number() && value.get<double>() > 0; }
bool below_one(const json& value) { return value.is_number() && value.get<double>() < 1; }
bool is_nvme(const json& value) { return value == "nvme"; }

struct Switch {
  std::string_view pointer;
  bool (*on)(const json&);
  std::string_view what;
};

constexpr Switch switches[] = {
    {"/amp", [](const json& value) { return value.is_object() && value.value("enabled", false) == true; }, "NVIDIA apex AMP"},
    {"/torch_autocast", [](const json& value) { return value.is_object() && value.value("enabled", false) == true; }, "torch autocast inside DeepSpeed"},
    {"/sparse_gradients", is_on, "reduction of sparse gradients"},
    {"/sparse_attention", is_on, "sparse attention"},
    {"/compression_training", is_on, "compression, which changes weights during training"},
    {"/quantize_training", is_on, "quantization during training"},
    {"/weight_quantization", is_on, "quantized weights"},
    {"/progressive_layer_drop", is_on, "layers that are dropped during training"},
    {"/eigenvalue", is_on, "eigenvalues for quantization"},
    {"/elasticity", [](const json& value) { return value.is_object() && value.value("enabled", false) == true; }, "elastic training, which chooses batch sizes itself"},
    {"/compile", [](const json& value) { return value.is_object() && value.value("deepcompile", false) == true; }, "DeepCompile, which writes the reduction anew"},
    {"/pipeline", is_on, "DeepSpeed's pipeline engine"},
    {"/sequence_parallel_size", above_one, "sequence parallelism set in the file"},
    {"/fp16/auto_cast", is_on, "autocast in fp16"},
    {"/fp16/fp16_master_weights_and_grads", is_on, "master weights in fp16"},
    {"/bf16/bf16_master_weights_and_grads", is_on, "master weights in bf16"},
    {"/bf16/bf16_optimizer_states", is_on, "optimizer states in bf16"},
    {"/zero_optimization/zero_hpz_partition_size", above_one, "ZeRO++'s partitions within a node"},
    {"/zero_optimization/zero_quantized_weights", is_on, "ZeRO++'s quantized weights"},
    {"/zero_optimization/zero_quantized_gradients", is_on, "ZeRO++'s quantized gradients"},
    {"/zero_optimization/zeropp_loco_param", is_on, "ZeRO++'s LoCo"},
    {"/zero_optimization/mics_shard_size", above_zero, "MiCS"},
    {"/zero_optimization/zenflow", is_on, "ZenFlow"},
    {"/zero_optimization/offload_optimizer/ratio", below_one, "a part of the optimizer that stays on the device"},
    {"/zero_optimization/offload_optimizer/super_offload", is_on, "SuperOffload"},
    {"/zero_optimization/offload_optimizer/device", is_nvme, "offload of the optimizer to NVMe"},
    {"/zero_optimization/offload_param/device", is_nvme, "offload of parameters to NVMe"},
};

bool is_or_lies_below(std::string_view pointer, std::string_view other) {
  return pointer == other || (pointer.starts_with(other) && pointer.substr(other.size()).starts_with('/'));
}

const Switch* switch_at(std::string_view pointer) {
  const auto* found = std::find_if(std::begin(switches), std::end(switches), [&](const Switch& s) { return s.pointer == pointer; });
  return found == std::end(switches) ? nullptr : found;
}

}  // namespace

bool touches_no_gradient(std::string_view pointer) {
  return std::any_of(std::begin(inert), std::end(inert), [&](std::string_view other) { return is_or_lies_below(pointer, other); });
}

bool is_known_switch(std::string_view pointer) { return switch_at(pointer) != nullptr; }

std::optional<std::string> not_modelled(std::string_view pointer, const json& value) {
  const Switch* found = switch_at(pointer);
  if (!found || !found->on(value)) return std::nullopt;
  return std::string(pointer) + ": " + std::string(found->what);
}

std::vector<std::string> other_keys(std::string_view object) {
  std::vector<std::string> out;
  const auto add = [&](std::string_view pointer) {
    const std::size_t slash = pointer.rfind('/');
    if (pointer.substr(0, slash) == object) out.emplace_back(pointer.substr(slash + 1));
  };
  for (std::string_view pointer : inert) add(pointer);
  for (const Switch& s : switches) add(s.pointer);
  return out;
}

}  // namespace gradledger::deepspeed
