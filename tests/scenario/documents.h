// Scenario documents for tests: a small valid one to bend, and a set that uses every key of the schema.
#pragma once

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "sim/frameworks/deepspeed/settings.h"
#include "sim/frameworks/framework.h"
#include "sim/load.h"
#include "sim/scenario/parse.h"
#include "sim/scenario/schema.h"
#include "tests/scenario/megatron_fsdp_documents.h"
#include "tests/support/temporary_folder.h"

namespace gradledger::testing {

using nlohmann::json;

// Two ranks, two parameters, one window.
inline json small_document() {
  return json::parse(R"({
    "name": "small",
    "world_size": 2,
    "parameters": [{"name": "w", "numel": 4}, {"name": "v", "numel": 3}],
    "engine": {"framework": "deepspeed", "config": {"gradient_accumulation_steps": 2, "zero_optimization": {"stage": 1}}},
    "script": [{"backward": {}}, {"step": {}}, {"backward": {}}, {"step": {}}]
  })");
}

// The small document with one place set to something else.
inline json small_document_with(const std::string& pointer, const json& value) {
  json document = small_document();
  document[json::json_pointer(pointer)] = value;
  return document;
}

inline constexpr ConfigReaders config_readers{.named = [](std::string_view id) -> const ConfigReader* { return framework_named(id); }, .ids = framework_ids};

// The part of the schema that a place of a document is held against: a configuration against that of its framework.
inline const json& rule_at(const json& document, const json& rule, const std::string& pointer) {
  if (pointer != "/engine/config") return rule;
  std::string framework = document["engine"]["framework"];
  std::replace(framework.begin(), framework.end(), '-', '_');
  return scenario_schema()["definitions"][framework + "_config"];
}

// What loops around PyTorch's own wrappers do. DeepSpeed's admission refuses it.
inline json loop_document() {
  return small_document_with("/script", json::parse(R"([
    {"backward": {"sum_of": 2}}, {"backward": {"raises_after": 1}}, {"backward": {"past_scaler": true}}, {"unscale": {"ranks": [1]}}, {"unscale": {}},
    {"step": {"past_scaler": true}}, {"zero_grad": {"of": "optimizer", "set_to_none": false}}, {"zero_grad": {"of": "engine", "ranks": [0], "set_to_none": false}}
  ])"));
}

inline Result<Scenario> read(const json& document, const std::filesystem::path& folder = ".") { return read_scenario(document.dump(), folder); }

// The one error of a document that must not be read.
inline InputError error_of(const Result<Scenario>& result) {
  if (result) {
    ADD_FAILURE() << "was read, but must be refused";
    return {};
  }
  return result.error();
}

inline void expect_refused(const json& document, const std::string& where, const std::string& part_of_message) {
  std::vector<InputError> all;
  error_of(read_scenario(document.dump(), ".", {}, &all));
  std::string told;
  for (const InputError& error : all) {
    if (error.where == where && error.message.find(part_of_message) != std::string::npos) return;
    told += "\n" + error.text();
  }
  ADD_FAILURE() << "among" << told << "\nis none at " << where << " that says " << part_of_message;
}

// Sizes of buckets are given in one of two ways.
inline json every_key_of_ddp(bool listed) {
  json document = small_document();
  document["name"] = "every key of DistributedDataParallel";
  document["model_dtype"] = "fp32";
  document["script"] = json::parse(R"([{"backward": {}}, {"step": {}}, {"zero_grad": "optimizer"}])");
  document["engine"] = json::parse(R"({"framework": "ddp", "as_of": "2.15.0", "config": {
    "bucket_cap_mb": 2.5, "find_unused_parameters": false, "gradient_as_bucket_view": true, "static_graph": true, "batched_grad_copy": false, "lazy_bucket_allocation": false,
    "skip_all_reduce_unused_params": false, "comm_hook": "allreduce", "optimizer_in_backward": false, "post_accumulate_grad_hook": false, "backward_in_forward": true,
    "grad_scaler": {"init_scale": 4.0, "growth_factor": 2.0, "backoff_factor": 0.5, "growth_interval": 3}}})");
  if (listed) {
    document["engine"]["config"] = json::parse(R"({"bucket_cap_mb_list": [1.5, 2], "delay_all_reduce": {"params": ["v"], "hook": "w"}, "comm_hook": "powerSGD", "rows": {"w": 2},
      "PowerSGDState": {"matrix_approximation_rank": 2, "start_powerSGD_iter": 3, "min_compression_rate": 1.5, "use_error_feedback": false, "warm_start": false}})");
  }
  return document;
}

// Units are named, or follow from how layers are wrapped.
inline json every_key_of_fully_shard(bool named) {
  json document = small_document();
  document["name"] = "every key of fully_shard";
  document["model_dtype"] = "fp32";
  document["world_size"] = 2;
  document["groups"] = {{"replicate", {{0}, {1}}}, {"shard", {{0, 1}}}};
  document["script"] = json::parse(R"([{"event": {"name": "set_requires_gradient_sync", "value": false}}, {"backward": {}},
    {"event": {"name": "set_requires_gradient_sync", "value": true}}, {"event": {"name": "set_reshard_after_backward", "value": false, "unit": 0, "recurse": false}},
    {"event": {"name": "unshard", "ranks": [0, 1]}}, {"backward": {}}, {"step": {}}, {"zero_grad": "optimizer"}])");
  document["engine"] = json::parse(R"({"framework": "fsdp2", "as_of": "2.15.0", "config": {
    "reshard_after_forward": false, "mixed_precision": {"param_dtype": "bf16", "reduce_dtype": "fp32", "param_dtype_override_fn": {"w": "fp32"}},
    "grad_dtype": "fp32", "offload": true, "wrap": "layers", "gradient_divide_factor": 0.5,
    "force_sum_reduction_for_comms": true, "reduce_scatter_unused_params": true, "optimizer_in_backward": false, "calls_unused_units": true, "input_requires_grad": true,
    "root_parameters_last": true, "clips_a_used_up_generator": true}})");
  if (named) {
    document["engine"]["config"] = json::parse(R"({"units": [["v"]], "nested": ["w"], "mesh": ["replicate", "shard"], "rows": {"w": 1},
      "grad_scaler": {"init_scale": 4.0, "growth_factor": 2.0, "backoff_factor": 0.5, "growth_interval": 3}})");
  }
  return document;
}

inline json every_key_of_fully_sharded(bool named) {
  json document = small_document();
  document["name"] = "every key of FullyShardedDataParallel";
  document["model_dtype"] = "fp32";
  document["world_size"] = 4;
  document["groups"] = {{"replicate", {{0, 2}, {1, 3}}}, {"shard", {{0, 1}, {2, 3}}}};
  document["script"] = json::parse(R"([{"no_sync": [{"backward": {}}]}, {"backward": {}}, {"step": {}}, {"zero_grad": "optimizer"}])");
  document["engine"] = json::parse(R"({"framework": "fsdp1", "as_of": "2.13.0", "config": {
    "sharding_strategy": "SHARD_GRAD_OP", "use_orig_params": true, "mixed_precision": {"param_dtype": "bf16", "reduce_dtype": "fp32", "keep_low_precision_grads": true},
    "offload": true, "computes_on_cpu": true, "backward_prefetch": "BACKWARD_POST", "forward_prefetch": true, "limit_all_gathers": false, "wrap": "root", "calls_unused_units": true}})");
  if (named) {
    document["engine"]["config"] = json::parse(R"({"sharding_strategy": "_HYBRID_SHARD_ZERO2", "backward_prefetch": "none", "units": [["v"]], "mesh": ["replicate", "shard"],
      "plain_grad_scaler": true, "grad_scaler": {"init_scale": 4.0, "growth_factor": 2.0, "backoff_factor": 0.5, "growth_interval": 3}})");
  }
  return document;
}

inline json every_key_of_megatron() {
  json document = small_document();
  document["name"] = "every key of Megatron-Core";
  document["model_dtype"] = "fp16";
  document["script"] = json::parse(R"([{"zero_grad": "engine"}, {"backward": {}}, {"step": {}}])");
  document["engine"] = json::parse(R"({"framework": "megatron", "as_of": "0.16.1", "config": {
    "ddp": {"grad_reduce_in_fp32": true, "overlap_grad_reduce": true, "overlap_param_gather": true, "use_distributed_optimizer": true, "check_for_nan_in_grad": false,
      "average_in_collective": true, "pad_buckets_for_high_nccl_busbw": true, "num_distributed_optimizer_instances": 2, "bucket_size": 20},
    "optimizer_config": {"clip_grad": 0.5, "loss_scale": 8.0, "initial_loss_scale": 16.0, "min_loss_scale": 2.0, "loss_scale_window": 3, "hysteresis": 1, "log_num_zeros_in_grad": true},
    "model": {"calculate_per_token_loss": false, "sequence_parallel": true},
    "parameters": {"w": ["shared_embedding", "shared"]}, "schedule": {"num_microbatches": 1, "loss": "sum_and_tokens", "grad_sync_func": true}}})");
  return document;
}

inline json every_key_of_an_interleaved_schedule() {
  json document = small_document();
  document["name"] = "every key of an interleaved schedule";
  document["parameters"] =
      json::parse(R"([{"name": "w", "numel": 8}, {"name": "v", "numel": 8, "pipeline_stage": 1}, {"name": "x", "numel": 4}, {"name": "y", "numel": 4, "pipeline_stage": 1}])");
  document["model_dtype"] = "fp32";
  document["world_size"] = 4;
  document["script"] = json::parse(R"([{"zero_grad": "engine"}, {"backward": {}}, {"step": {}}])");
  document["engine"] = json::parse(R"({"framework": "megatron", "as_of": "0.16.1", "pipeline_stages": 2, "config": {
    "schedule": {"num_microbatches": 2, "model_chunks": [["w", "v"], ["x", "y"]], "microbatch_group_size_per_vp_stage": 2}}})");
  return document;
}

// With data-parallel ranks of one kind, or of two.
inline json every_key_of_a_layout(bool mesh) {
  json document = every_key_of_megatron();
  document["name"] = "every key of a layout";
  document["engine"] = {{"framework", "megatron"}, {"config", json::object()}};
  document["parameters"] = json::parse(R"([{"name": "w", "numel": 8, "sharded_over": "tp"}, {"name": "norm", "numel": 4, "summed_over": "tp"},
    {"name": "encoder", "numel": 3, "averaged_over": "tp", "pipeline_stage": 0}])");
  document["world_size"] = 16;
  document["layout"] = json::parse(R"({"order": "tp-cp-sp-ep-dp-pp", "tp": 2, "cp": 2, "sp": 2, "ep": 1, "etp": 1, "dp": 2, "pp": 1})");
  if (mesh) document["layout"] = json::parse(R"({"tp": 2, "shard": 2, "replicate": 4})");
  return document;
}

// What parallelize_module made of the parameters of a model under a wrapper of PyTorch's.
inline json every_key_of_a_parallelized_model(const char* framework) {
  json document = small_document();
  document["name"] = std::string("every key of a parallelized model of ") + framework;
  document["model_dtype"] = "fp32";
  document["world_size"] = 4;
  document["layout"] = {{"tp", 2}};
  document["parameters"] = json::parse(R"([{"name": "w", "numel": 8, "sharded_over": "tp"}, {"name": "norm", "numel": 4, "summed_over": "tp"}])");
  document["script"] = json::parse(R"([{"backward": {}}, {"step": {}}, {"zero_grad": "optimizer"}])");
  document["engine"] = {{"framework", framework}, {"config", {{"plain", {"norm"}}}}};
  return document;
}

inline json every_key_of_a_configuration() {
  return json::parse(R"({
    "$schema": "./scenario.schema.json",
    "name": "every key of a configuration",
    "note": "A note with \"quotes\", a tab\t, an umlaut \u00e4 and a line\nbreak.",
    "source": ["deepspeedai/DeepSpeed#7981", "elsewhere"],
    "covers": ["catalogue-1", "live-5b"],
    "twin_of": "its-twin",
    "world_size": 4,
    "parameters": [{"name": "w/0~x", "numel": 30}, {"name": "w1", "numel": 0, "used_by": "micro_batch < 2 and rank != 1", "hooked_outputs": 2},
                   {"name": "w2", "numel": 13, "used_by": "micro_batch == last", "produced_on": "side"},
                   {"name": "frozen", "numel": 5, "trainable": false, "expert": 1}, {"name": "later", "numel": 3, "pipeline_stage": 1}, {"name": "again", "numel": 30, "tied_to": "w/0~x"}],
    "model_dtype": "bf16",
    "engine": {
      "framework": "deepspeed", "param_groups": [{"params": ["later", "w/0~x"], "lr": 0.25}, {"params": ["w1", "w2", "frozen"], "weight_decay": 0.5}],
      "expert_parallel_size": 1, "sequence_parallel_size": 2, "pipeline_stages": 2,
      "as_of": {"base": "0.18.9", "offload_keep": "gate_ga", "scale_site": "output_hook"},
      "config": {
        "train_batch_size": 12, "train_micro_batch_size_per_gpu": 3, "gradient_accumulation_steps": 4, "managed_gradient_accumulation": true,
        "gradient_allreduce_op": "sum", "prescale_gradients": true, "gradient_predivide_factor": 2.5, "communication_data_type": "fp32",
        "data_types": {"grad_accum_dtype": "fp32"}, "gradient_clipping": 0.75,
        "bf16": {"enabled": true, "immediate_grad_update": true, "check_grad_overflow": false},
        "fp16": {"enabled": false, "loss_scale": 128.0, "initial_scale_power": 12, "loss_scale_window": 500, "hysteresis": 3,
                 "consecutive_hysteresis": true, "min_loss_scale": 0.5, "auto_cast": false, "fp16_master_weights_and_grads": false},
        "zero_optimization": {
          "stage": 1, "contiguous_gradients": false, "reduce_scatter": true, "use_multi_rank_bucket_allreduce": false, "reduce_bucket_size": 5e8,
          "overlap_comm": true, "round_robin_gradients": true, "sub_group_size": 1e6,
          "offload_param": {"device": "cpu", "pin_memory": true, "buffer_count": 5, "buffer_size": 1e8, "max_in_cpu": 1e9},
          "offload_optimizer": {"device": "cpu", "pin_memory": true, "buffer_count": 4, "fast_init": false, "pipeline_read": false, "pipeline_write": true, "ratio": 1.0},
          "allgather_bucket_size": 2e8, "allgather_partitions": true, "stage3_param_persistence_threshold": 1e4, "stage3_max_live_parameters": 1e9,
          "stage3_max_reuse_distance": 1e9, "stage3_prefetch_bucket_size": 5e7, "stage3_gather_16bit_weights_on_model_save": true,
          "stage3_gather_fp16_weights_on_model_save": false, "ignore_unused_parameters": false, "load_from_fp32_weights": true,
          "elastic_checkpoint": false, "memory_efficient_linear": false, "zero_hpz_partition_size": 1},
        "optimizer": {"type": "AdamW", "params": {"lr": 0.015625, "betas": [0.875, 0.96875], "eps": 0.0625, "weight_decay": 0.25, "torch_adam": true}},
        "steps_per_print": 10, "wall_clock_breakdown": true, "dump_state": false, "memory_breakdown": true, "zero_allow_untested_optimizer": true,
        "zero_force_ds_cpu_optimizer": false, "seq_parallel_communication_data_type": "bf16", "tensor_parallel": {"autotp_size": 1}
      }
    },
    "gradients": {"kind": "normal", "seed": 9007199254740991, "samples_per_micro_batch": 8},
    "contract": {"window": "every_step_call", "average_over": "none", "divide_by": 3, "zero_grad": "keeps"},
    "script": [{"repeat": {"times": 3, "of": [{"repeat": {"times": 2, "of": [{"backward": {}}]}}, {"step": {}}]}}],
    "expect": {
      "findings": [
        {"class": "offload-loss", "contributions": "micro_batch < 3", "own": "3/8", "peer": 0.25, "lost_weight": "1/3"},
        {"class": "wrong-scale", "own": 0.5, "peer": "0/1", "lost_weight": 0.125},
        {"class": "deadlock"}],
      "collectives": {"gradient": {"per_step": 4, "at_most_per_step": 4, "bytes_per_step": 1, "at_most_bytes_per_step": 2},
                      "norm": {"per_step": 1, "at_most_per_step": 2, "bytes_per_step": 4, "at_most_bytes_per_step": 4},
                      "overflow": {"per_step": 0, "at_most_per_step": 1, "bytes_per_step": 0, "at_most_bytes_per_step": 1},
                      "parameter": {"per_step": 3, "at_most_per_step": 1048576, "bytes_per_step": 8, "at_most_bytes_per_step": 9007199254740991},
                      "user": {"per_step": 0, "at_most_per_step": 1, "bytes_per_step": 2, "at_most_bytes_per_step": 3},
                      "control": {"per_step": 1, "at_most_per_step": 2, "bytes_per_step": 3, "at_most_bytes_per_step": 4}},
      "accounting_only": false, "memory": [{"of": "accumulators", "space": "host", "phase": "boundary", "rank": 3, "resident": 0, "at_most_resident": 1, "peak": 2, "at_most_peak": 3},
                 {"peak": 9007199254740991}],
      "not_allocated": ["accumulated_grads_in_cpu"],
      "values": [{"event": 6, "rank": 3, "buffer": "w1.grad", "values": [1, -0.5, 1e30]}],
      "comparison": {"with": "../other.json", "applied": "differ"}
    }
  })");
}

inline json every_event() {
  return json::parse(R"({
    "name": "every event, and values",
    "allow_open": true,
    "after_error": "go_on",
    "world_size": 2,
    "parameters": [{"name": "a", "numel": 2}, {"name": "b/c~d", "numel": 1}],
    "model_dtype": "fp16",
    "engine": {"framework": "deepspeed", "as_of": "before #7981",
               "config": {"train_batch_size": 8, "gradient_accumulation_steps": 2, "communication_data_type": null,
                          "data_types": {"grad_accum_dtype": null}, "fp16": {"enabled": true, "loss_scale": 0},
                          "zero_optimization": {"stage": 1, "overlap_comm": null, "offload_param": {"device": "none", "pin_memory": false},
                                                "offload_optimizer": {"device": "none", "pin_memory": false}},
                          "seq_parallel_communication_data_type": null},
               "optimizer": {"type": "Adam", "lr": 0.5, "betas": [0, 0.5], "eps": 0, "weight_decay": 0, "torch_adam": false}},
    "gradients": {"kind": "values", "micro_batches": [
        [{"a": [1, "inf"], "b/c~d": [-0.0]}, {"a": ["-inf", "nan"], "b/c~d": [0.375]}],
        [{"a": [65504, 3], "b/c~d": [16777216]}, {"a": [-1.5, 2], "b/c~d": [0]}]]},
    "contract": {"window": "since_last_step", "average_over": "world", "divide_by": "gradient_accumulation_steps", "zero_grad": "discards"},
    "script": [
      {"set_boundary": false}, {"set_boundary": {"value": true, "ranks": [1]}}, {"set_boundary": {"value": true}},
      {"no_sync": [{"backward": {"micro_batches": 2}}, {"backward": {"ranks": [0], "micro_batch": 1, "uses": ["b/c~d", "a"]}},
                   {"backward": {"micro_batch": 0, "order": {"0": ["a"], "1": ["a", "b/c~d"]}}}]},
      {"no_sync": []}, {"no_sync": {"ranks": [1], "of": [{"backward": {"micro_batch": 0}}]}},
      {"coalesce": [{"backward": {"micro_batch": 0, "scale_wrt_gas": false, "phases": 2, "direct": true}}, {"raise": {"ranks": [1], "caught": true}}]},
      {"forward": {}}, {"forward": {"ranks": [1]}}, {"backward": {"of": 0, "micro_batch": 0}},
      {"zero_grad": "engine"}, {"zero_grad": "optimizer"}, {"zero_grad": {"of": "engine", "ranks": [0]}}, {"zero_grad": {"of": "optimizer"}},
      {"overflow": {"rank": 1, "micro_batch": 0}}, {"overflow": {"ranks": [0], "micro_batch": 1, "parameter": "b/c~d", "value": "nan"}},
      {"overflow": {"micro_batch": 1, "value": "-inf"}},
      {"set_gradient": {"parameter": "a", "times": 3}}, {"set_gradient": {"parameter": "b/c~d", "times": "1/2", "api": "local"}},
      {"set_gradient": {"parameter": "a", "times": 0.25, "api": "full"}},
      {"step": {"ranks": [0]}}, {"step": {}}
    ]
  })");
}

// Its table is table_text.
inline json values_of_a_file() {
  return json::parse(R"({
    "name": "values of a file", "world_size": 1, "parameters": [{"name": "p", "numel": 2}],
    "engine": {"framework": "deepspeed", "as_of": "head", "config": {}},
    "gradients": {"kind": "values", "file": "table.gradients.json"},
    "script": [{"backward": {"micro_batch": 0}}, {"step": {}}], "expect": {"findings": []}
  })");
}

inline json every_key_of_a_network() {
  return json::parse(R"({
    "name": "every key of a network", "world_size": 2,
    "parameters": [{"name": "0.bias", "numel": 3}, {"name": "0.weight", "numel": 6}, {"name": "1/weight", "numel": 3, "trainable": false}],
    "engine": {"framework": "deepspeed", "config": {"gradient_accumulation_steps": 2}},
    "gradients": {"kind": "mlp", "seed": 3, "samples_per_micro_batch": 4, "activation": "gelu",
                  "layers": [{"weight": "0.weight", "bias": "0.bias", "in": 2, "out": 3}, {"weight": "1/weight", "in": 3, "out": 1}]},
    "script": [{"backward": {}}, {"step": {}}], "expect": {"findings": []}
  })");
}

inline constexpr const char* table_text = R"([[{"p": [0.5, "nan"]}]])";

// What a loop can state of itself.
inline json every_key_of_a_loop() {
  return json::parse(R"doc({
    "name": "every key of a loop",
    "world_size": 2,
    "parameters": [{"name": "w", "numel": 4}, {"name": "v", "numel": 3}],
    "engine": {"framework": "deepspeed", "config": {"gradient_accumulation_steps": 2, "zero_optimization": {"stage": 0}}},
    "tokens": {"table": [[[3, 5, 2], [6, 1, 0]]]},
    "groups": {"each": [[0], [1]], "both": [[1, 0]]},
    "contract": {"window": "marked", "average_over": "both", "divide_by": "tokens_of_rank", "clip": {"norm_over": "each"}, "surplus_communication": "reported"},
    "script": [
      {"backward": {"weight": "2*tokens/tokens_of_rank"}}, {"step": {"update": false}},
      {"backward": {"micro_batches": 2, "weight": [["1/3", 0.1], ["size_of(each)/micro_batches_of(both)", 2]]}},
      {"scale_gradients": {"by": "world/2", "ranks": [0]}}, {"scale_gradients": {"by": 0.5}},
      {"all_reduce": {"of": "gradients", "over": "both", "as": "sum", "ranks": [0, 1]}}, {"all_reduce": {"of": "scalar", "as": "mean"}},
      {"clip": {"max_norm": 0.5, "norm_over": "both", "ranks": [1]}}, {"finalize": {"ranks": [0, 1]}}, {"save": {}}, {"restore": {}},
      {"step": {"update": true}}]
  })doc");
}

// Its table is tokens_text.
inline json tokens_of_a_file() {
  json document = small_document_with("/tokens", {{"file", "t.tokens.json"}});
  document["name"] = "tokens of a file";
  document["contract"]["divide_by"] = "tokens";
  return document;
}
inline constexpr const char* tokens_text = "[[[3, 5], [6, 1]]]";

inline json parameters_of_a_model() {
  json document = small_document_with("/parameters", {{"model", "gpt2"}});
  document["name"] = "parameters of a published model";
  return document;
}

// Its shapes are shapes_text.
inline json parameters_of_a_file() {
  json document = small_document_with("/parameters", {{"file", "model.shapes"}});
  document["name"] = "parameters of a file";
  return document;
}
inline constexpr const char* shapes_text = "# a model\nw 2 3\nv 3\n";

// Valid documents that together use every key of the schema, each in every form.
inline std::vector<json> rich_documents() {
  return {every_key_of_a_configuration(),
          every_event(),
          values_of_a_file(),
          every_key_of_a_network(),
          every_key_of_a_loop(),
          tokens_of_a_file(),
          parameters_of_a_model(),
          parameters_of_a_file(),
          small_document(),
          every_key_of_ddp(false),
          every_key_of_ddp(true),
          every_key_of_fully_shard(false),
          every_key_of_fully_shard(true),
          every_key_of_fully_sharded(false),
          every_key_of_fully_sharded(true),
          every_key_of_megatron(),
          every_key_of_an_interleaved_schedule(),
          every_key_of_megatron_fsdp(small_document(), false),
          every_key_of_megatron_fsdp(small_document(), true),
          every_key_of_megatron_fsdp_v2(small_document(), false),
          every_key_of_megatron_fsdp_v2(small_document(), true),
          every_key_of_a_layout(false),
          every_key_of_a_layout(true),
          every_key_of_a_parallelized_model("fsdp2"),
          every_key_of_a_parallelized_model("ddp")};
}

}  // namespace gradledger::testing
