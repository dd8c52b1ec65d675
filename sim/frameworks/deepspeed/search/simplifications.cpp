#include "sim/frameworks/deepspeed/search/parts.h"
#include "sim/frameworks/deepspeed/settings.h"

namespace gradledger::deepspeed {
namespace {

// Sets what `field` selects to a value.
template <class Field, class Value>
Simplification set(Field field, Value value) {
  return [field, value](Scenario& s) {
    auto& at = field(s);
    if (at == value) return false;
    at = value;
    return true;
  };
}

#define GRADLEDGER_SETTING(path) \
  [](Scenario & s) -> auto& { return deepspeed_config(s).path; }

void add_dtype_defaults(std::vector<Simplification>& out) {
  const DeepSpeedConfig config;
  const auto defaults = [&](auto field, const auto& value) { out.push_back(set(field, value)); };
  out.push_back([](Scenario& s) {
    if (s.model_dtype == Dtype::float32) return false;
    set_model_dtype(s, Dtype::float32);
    deepspeed_config(s).bf16 = {};
    deepspeed_config(s).fp16 = {};
    return true;
  });
  out.push_back([](Scenario& s) {
    if (s.model_dtype != Dtype::float16) return false;
    set_model_dtype(s, Dtype::bfloat16);
    deepspeed_config(s).fp16 = {};
    return true;
  });
  defaults(GRADLEDGER_SETTING(grad_accum_dtype), config.grad_accum_dtype);
  defaults(GRADLEDGER_SETTING(communication_data_type), config.communication_data_type);
  defaults(GRADLEDGER_SETTING(bf16.immediate_grad_update), std::optional<bool>{});
  defaults(GRADLEDGER_SETTING(fp16.loss_scale_window), config.fp16.loss_scale_window);
  defaults(GRADLEDGER_SETTING(fp16.hysteresis), config.fp16.hysteresis);
  defaults(GRADLEDGER_SETTING(fp16.initial_scale_power), config.fp16.initial_scale_power);
  out.push_back([](Scenario& s) {
    Fp16Config& fp16 = deepspeed_config(s).fp16;
    if (!fp16.enabled || fp16.loss_scale == 1) return false;
    fp16.loss_scale = 1;
    return true;
  });
}

void add_window_defaults(std::vector<Simplification>& out) {
  const auto defaults = [&](auto field, const auto& value) { out.push_back(set(field, value)); };
  defaults(GRADLEDGER_SETTING(gradient_accumulation_steps), 1u);
  out.push_back([](Scenario& s) {
    std::uint32_t& steps = deepspeed_config(s).gradient_accumulation_steps;
    return steps > 2 && (steps = 2) == 2;
  });
  defaults(GRADLEDGER_SETTING(managed_gradient_accumulation), true);
  out.push_back([](Scenario& s) {
    const bool was = deepspeed_config(s).gradient_allreduce_op == AllreduceOp::sum;
    deepspeed_config(s).gradient_allreduce_op = AllreduceOp::mean;
    s.contract.average_over = "world";
    return was;
  });
  defaults(GRADLEDGER_SETTING(prescale_gradients), false);
  defaults(GRADLEDGER_SETTING(gradient_predivide_factor), 1.0);
  defaults(GRADLEDGER_SETTING(gradient_clipping), std::optional(0.0));
}

void add_zero_defaults(std::vector<Simplification>& out) {
  const auto defaults = [&](auto field, const auto& value) { out.push_back(set(field, value)); };
  const ZeroConfig zero;
  defaults(GRADLEDGER_SETTING(zero.reduce_bucket_size), zero.reduce_bucket_size);
  defaults(GRADLEDGER_SETTING(zero.contiguous_gradients), zero.contiguous_gradients);
  defaults(GRADLEDGER_SETTING(zero.reduce_scatter), zero.reduce_scatter);
  defaults(GRADLEDGER_SETTING(zero.use_multi_rank_bucket_allreduce), zero.use_multi_rank_bucket_allreduce);
  defaults(GRADLEDGER_SETTING(zero.overlap_comm), zero.overlap_comm);
  out.push_back([](Scenario& s) {  // at stage 3 the default is to overlap
    const bool was = deepspeed_config(s).zero.overlap_comm == true;
    if (was) deepspeed_config(s).zero.overlap_comm = false;
    return was;
  });
  defaults(GRADLEDGER_SETTING(zero.round_robin_gradients), zero.round_robin_gradients);
  defaults(GRADLEDGER_SETTING(zero.ignore_unused_parameters), zero.ignore_unused_parameters);
  defaults(GRADLEDGER_SETTING(zero.sub_group_size), zero.sub_group_size);
  defaults(GRADLEDGER_SETTING(zero.offload_pin_memory), zero.offload_pin_memory);
  defaults(GRADLEDGER_SETTING(zero.offload_param), zero.offload_param);
}

}  // namespace

std::vector<Simplification> simplifications() {
  std::vector<Simplification> out;
  add_dtype_defaults(out);
  add_window_defaults(out);
  add_zero_defaults(out);
  return out;
}

}  // namespace gradledger::deepspeed
