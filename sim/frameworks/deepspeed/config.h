// The part of a DeepSpeed configuration that decides what happens to gradients, under DeepSpeed's own key names.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "sim/numeric/dtype.h"

namespace gradledger {

enum class AllreduceOp : std::uint8_t { mean, sum };
enum class OffloadDevice : std::uint8_t { none, cpu };

struct Bf16Config {
  bool enabled = false;
  std::optional<bool> immediate_grad_update;  // default by release: false, but true from DeepSpeed#4975 to DeepSpeed#6976
  std::optional<bool> check_grad_overflow;    // default by release: false, true since DeepSpeed#8035

  bool operator==(const Bf16Config&) const = default;
};

struct Fp16Config {
  bool enabled = false;
  double loss_scale = 0;  // 0: dynamic
  std::uint32_t initial_scale_power = 16;
  std::uint32_t loss_scale_window = 1000;
  std::uint32_t hysteresis = 2;
  bool consecutive_hysteresis = false;
  double min_loss_scale = 1;
  bool states_defaults = false;  // keys of the dynamic scale are there, and say what holds without them

  bool has_defaults() const { return initial_scale_power == 16 && loss_scale_window == 1000 && hysteresis == 2 && !consecutive_hysteresis && min_loss_scale == 1; }
  // A dynamic scale of which nothing is stated. Before DeepSpeed#6976 the scaler of ZeRO's wrappers had the defaults of its class then.
  bool leaves_the_scaler_open() const { return loss_scale == 0 && has_defaults() && !states_defaults; }
  static Fp16Config of_the_class() { return {.enabled = true, .initial_scale_power = 32, .hysteresis = 1}; }

  bool operator==(const Fp16Config&) const = default;
};

struct ZeroConfig {
  std::uint32_t stage = 0;
  bool contiguous_gradients = true;
  bool reduce_scatter = true;
  bool use_multi_rank_bucket_allreduce = true;
  std::uint64_t reduce_bucket_size = 500'000'000;  // elements
  std::optional<bool> overlap_comm;                // default: true at stage 3, false below
  bool round_robin_gradients = false;
  std::uint64_t sub_group_size = 1'000'000'000;  // elements, stage 3
  OffloadDevice offload_optimizer = OffloadDevice::none;
  std::optional<bool> offload_pin_memory;             // default by release: false, true since DeepSpeed#8207
  OffloadDevice offload_param = OffloadDevice::none;  // stage 3; ignored below it
  bool ignore_unused_parameters = true;               // false: stages 1 and 2 with offload raise in a step where a parameter got no gradient

  bool operator==(const ZeroConfig&) const = default;
};

struct DeepSpeedConfig {
  std::uint32_t gradient_accumulation_steps = 1;
  bool managed_gradient_accumulation = true;  // false: step() is the boundary
  AllreduceOp gradient_allreduce_op = AllreduceOp::mean;
  bool prescale_gradients = false;
  double gradient_predivide_factor = 1.0;
  std::optional<Dtype> communication_data_type;
  std::optional<Dtype> seq_parallel_communication_data_type;  // in its place where ranks share a sequence
  std::uint32_t autotp_size = 0;                              // tensor_parallel.autotp_size: 2 and more cut the model
  std::optional<Dtype> grad_accum_dtype;                      // data_types.grad_accum_dtype
  std::optional<double> gradient_clipping;                    // default by release: 0, 1.0 since DeepSpeed#8068
  Bf16Config bf16;
  Fp16Config fp16;
  ZeroConfig zero;
  std::string inert = "{}";  // canonical JSON of the keys that DeepSpeed knows and that do not touch gradients

  bool operator==(const DeepSpeedConfig&) const = default;
  std::string json_text() const;

  bool offloads_parameters() const { return zero.stage == 3 && zero.offload_param == OffloadDevice::cpu; }
  bool offloads_optimizer() const { return zero.offload_optimizer == OffloadDevice::cpu; }
};

}  // namespace gradledger
