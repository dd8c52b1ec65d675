#include "sim/frameworks/deepspeed/engines.h"

#include <algorithm>
#include <array>

#include "sim/base/limits.h"
#include "sim/frameworks/deepspeed/behaviour.h"
#include "sim/frameworks/deepspeed/engine/bf16_optimizer.h"
#include "sim/frameworks/deepspeed/engine/data_parallel.h"
#include "sim/frameworks/deepspeed/engine/muon.h"
#include "sim/frameworks/deepspeed/engine/partition.h"
#include "sim/frameworks/deepspeed/engine/zero_stage3.h"
#include "sim/frameworks/deepspeed/engine/zero_stage_1_and_2.h"
#include "sim/frameworks/deepspeed/settings.h"

namespace gradledger::deepspeed {
namespace {

InputError refused(std::string where, std::string reason) { return {"/engine/config" + std::move(where), "DeepSpeed refuses this at initialisation: " + std::move(reason)}; }

// One wrapper for DeepSpeed's FusedAdam, another for every other base optimizer.
Wrapper fp16_wrapper(const Scenario& s) { return s.engine.optimizer.fused() ? Wrapper::fp16_fused : Wrapper::fp16_unfused; }

Result<Wrapper> select_stage0(const Scenario& s, const Behaviour& behaviour) {
  const std::string model(name_of(s.model_dtype)), acc(name_of(grad_accum_dtype_of(s)));
  const bool same = s.model_dtype == grad_accum_dtype_of(s);
  const InputError mix = refused("/data_types/grad_accum_dtype", "at stage 0 a " + model + " model cannot accumulate in " + acc + " (NotImplementedError)");
  if (s.model_dtype != Dtype::bfloat16) {
    if (!same) return mix;
    return s.model_dtype == Dtype::float32 ? Wrapper::plain : fp16_wrapper(s);
  }
  if (!same && grad_accum_dtype_of(s) != Dtype::float32) return mix;
  // A pipeline accumulates in bf16 in a wrapper of its own; while the two names of it were one string the other wrapper took it.
  if (same && s.engine.pipeline_stages > 1) return behaviour.bf16_st0_accumulation == Bf16Stage0Accumulation::any ? fp16_wrapper(s) : Wrapper::bf16;
  switch (behaviour.bf16_st0_accumulation) {
    case Bf16Stage0Accumulation::fp32_only: return same ? Result<Wrapper>(mix) : Wrapper::bf16;
    case Bf16Stage0Accumulation::any: return fp16_wrapper(s);
    case Bf16Stage0Accumulation::model_only: return same ? Result<Wrapper>(fp16_wrapper(s)) : mix;
  }
  return mix;
}

Result<Wrapper> wrapper_of(const Scenario& s, const Behaviour& behaviour) {
  const DeepSpeedConfig& config = deepspeed_config(s);
  if (config.zero.stage == 0) return select_stage0(s, behaviour);
  if (config.zero.stage == 3) return Wrapper::zero_stage_3;
  if (config.zero.stage > 1 || s.model_dtype != Dtype::bfloat16 || grad_accum_dtype_of(s) != Dtype::float32 || config.offloads_optimizer()) return Wrapper::zero_stages_1_and_2;
  return behaviour.bf16_acc_fp32_wrapper == Bf16Fp32Wrapper::bf16_optimizer ? Wrapper::bf16 : fp16_wrapper(s);
}

// Unmanaged accumulation came stage by stage.
std::optional<InputError> unmanaged_refusal(const DeepSpeedConfig& config, UnmanagedAccumulation served) {
  using enum UnmanagedAccumulation;
  if (served == absent) return std::nullopt;
  const std::uint32_t stage = config.zero.stage;
  const UnmanagedAccumulation needed = config.offloads_optimizer() ? with_offload : stage == 3 ? up_to_stage_3 : stage == 2 ? up_to_stage_2 : stages_0_and_1;
  if (served < needed)
    return refused("/managed_gradient_accumulation",
                   "unmanaged accumulation does not serve stage " + std::to_string(stage) + (config.offloads_optimizer() ? " with offload" : "") + " yet (NotImplementedError)");
  if (stage < 2 && config.zero.overlap_comm.value_or(false))
    return refused("/zero_optimization/overlap_comm", "unmanaged accumulation overlaps at stages 2 and 3 alone (AssertionError)");
  return std::nullopt;
}

// DeepSpeed#8280: before it a parameter without elements inside a partition found no master weights to be linked to. Round robin is not asked.
// Since 0.19.8 such parameters are left out of their group, of which something must be left.
std::optional<InputError> empty_parameter_refusal(const Scenario& s, const Behaviour& behaviour, Wrapper wrapper, const RankGroup& group) {
  const auto without_elements = [&](std::uint32_t p) { return s.parameters[p].numel == 0; };
  if (behaviour.empty_parameter == EmptyParameter::left_out && !group.parameters.empty() && std::all_of(group.parameters.begin(), group.parameters.end(), without_elements))
    return InputError{"/parameters/" + std::to_string(group.parameters.front()) + "/numel",
                      std::string("DeepSpeed refuses this at initialisation: a group of the optimizer of which no parameter has elements (") +
                          (wrapper == Wrapper::bf16 ? "ValueError" : "IndexError") + "); expected elements"};
  if (behaviour.empty_parameter != EmptyParameter::looked_up) return std::nullopt;
  const FlatPartition layout(s, group.parameters, group.peers.size(), Dealing::in_order);
  for (const std::uint32_t p : group.parameters)
    if (without_elements(p) && layout.offset(p) < layout.padded() && layout.offset(p) % layout.partition() != 0)
      return InputError{"/parameters/" + std::to_string(p) + "/numel",
                        "DeepSpeed refuses this at initialisation: an empty parameter inside a rank's partition (AssertionError); expected elements, or it first"};
  return std::nullopt;
}

// Of every rank: stages of a pipeline and experts' ranks have groups of their own.
std::optional<InputError> empty_parameter_refusal(const Scenario& s, const Behaviour& behaviour, Wrapper wrapper) {
  if (std::none_of(s.parameters.begin(), s.parameters.end(), [](const Parameter& p) { return p.numel == 0; })) return std::nullopt;
  for (std::uint32_t rank = 0; rank < s.world_size; ++rank)
    for (const RankGroup& group : sorted_groups(s, rank))
      if (auto error = empty_parameter_refusal(s, behaviour, wrapper, group)) return error;
  return std::nullopt;
}

// Mixtures of experts.
std::optional<InputError> expert_refusal(const Scenario& s) {
  const ZeroConfig& zero = deepspeed_config(s).zero;
  if (zero.stage == 3) return refused("/zero_optimization/stage", "stage 3 does not serve mixtures of experts (AssertionError); expected a stage from 0 to 2");
  if (zero.stage == 2 && !zero.contiguous_gradients && !deepspeed_config(s).offloads_optimizer())
    return refused("/zero_optimization/contiguous_gradients", "stage 2 needs them for experts (AssertionError)");
  if (zero.stage > 0 && !zero.reduce_scatter) return refused("/zero_optimization/reduce_scatter", "stages 1 and 2 need it for experts (AssertionError)");
  return std::nullopt;
}

std::optional<InputError> refusal(const Scenario& s, const Behaviour& behaviour) {
  const DeepSpeedConfig& config = deepspeed_config(s);
  const std::uint32_t stage = config.zero.stage;
  if (stage >= 2 && config.zero.reduce_scatter) {
    if (config.gradient_predivide_factor != 1.0) return refused("/gradient_predivide_factor", "stages 2 and 3 with reduce_scatter need a factor of 1.0 (AssertionError)");
    if (config.prescale_gradients) return refused("/prescale_gradients", "stages 2 and 3 with reduce_scatter do not prescale (AssertionError)");
  }
  if (stage == 3 && config.gradient_allreduce_op == AllreduceOp::sum && behaviour.allreduce_op_sum == SumOp::honoured)
    return refused("/gradient_allreduce_op", "stage 3 only averages; expected \"mean\"");
  if (!config.managed_gradient_accumulation) {
    if (auto error = unmanaged_refusal(config, behaviour.unmanaged_accumulation)) return error;
  }
  if (reduces_whole_buckets(config, behaviour) && config.zero.reduce_bucket_size > limits::whole_bucket_numel_max)
    return InputError{"/engine/config/zero_optimization/reduce_bucket_size",
                      "a whole bucket is reduced here (switch stage12_bucket_payload); expected at most " + std::to_string(limits::whole_bucket_numel_max)};
  if (auto error = muon_refusal(s, behaviour)) return error;
  if (stage == 0 && config.offloads_optimizer()) return InputError{"/engine/config/zero_optimization/offload_optimizer", "has no effect at stage 0; expected a stage from 1 to 3"};
  const bool experts = std::any_of(s.parameters.begin(), s.parameters.end(), [](const Parameter& p) { return p.expert.has_value(); });
  if (stage >= 2 && s.engine.pipeline_stages > 1)
    return refused("/zero_optimization/stage", "stages 2 and 3 do not go with pipelines (AssertionError); expected 0 or 1 with /engine/pipeline_stages");
  if (experts) {
    if (auto error = expert_refusal(s)) return error;
  }
  return std::nullopt;
}

}  // namespace

std::span<const EngineInfo> engines() {
  static constexpr std::array infos{
      EngineInfo{"torch optimizer", "stage 0, fp32", "param.grad, by autograd, fp32, replicated", "recorded"},
      EngineInfo{"FP16_Optimizer",
                 "with DeepSpeed's Adam: stage 0, fp16, and bf16 since DeepSpeed#7515; stage 1, bf16, fp32 accumulation between DeepSpeed#7515 and DeepSpeed#7788",
                 "param.grad, by autograd, model dtype, replicated", "read"},
      EngineInfo{"FP16_UnfusedOptimizer", "the same with another base optimizer: SGD, or Adam with torch_adam", "param.grad, by autograd, model dtype, replicated", "recorded"},
      EngineInfo{"BF16_Optimizer",
                 "stage 1, bf16, grad_accum_dtype fp32, no CPU offload; before DeepSpeed#7515 stage 0 with these as well; stage 0, bf16, bf16 accumulation in a pipeline, "
                 "but from DeepSpeed#7515 to DeepSpeed#7788",
                 "one flat buffer in the accumulation dtype, replicated", "recorded"},
      EngineInfo{"DeepSpeedZeroOptimizer", "stages 1 and 2 otherwise",
                 "stage 1: param.grad until the boundary; stage 2: all_grad_tensors of owned parameters; offload: accumulated_grads_in_cpu", "recorded"},
      EngineInfo{"DeepSpeedZeroOptimizer_Stage3", "stage 3", "grad_partition of every parameter, accumulation dtype, on the device or, with offload, on the host", "recorded"},
  };
  return infos;
}

Result<Wrapper> select_wrapper(const Scenario& scenario) {
  const auto behaviour = resolve_behaviour(scenario.engine.as_of);
  if (!behaviour) return behaviour.error();
  if (auto error = refusal(scenario, *behaviour)) return *error;
  const Result<Wrapper> wrapper = wrapper_of(scenario, *behaviour);
  // The others divide nothing and link nothing.
  if (!wrapper || (*wrapper != Wrapper::bf16 && *wrapper != Wrapper::zero_stages_1_and_2)) return wrapper;
  if (auto error = empty_parameter_refusal(scenario, *behaviour, *wrapper)) return *error;
  return wrapper;
}

EngineFactory engine_factory(const Scenario& scenario) {
  const auto selected = select_wrapper(scenario);
  const auto resolved = resolve_behaviour(scenario.engine.as_of);
  expects(selected.ok() && resolved.ok(), "an engine is made of a configuration that was not checked");
  return [wrapper = *selected, behaviour = *resolved](const EngineContext& context) -> std::unique_ptr<Engine> {
    const DeepSpeedContext mine{context, behaviour};
    switch (wrapper) {
      case Wrapper::bf16: return std::make_unique<Bf16Optimizer>(mine);
      case Wrapper::zero_stages_1_and_2: return std::make_unique<ZeroStage1And2>(mine);
      case Wrapper::zero_stage_3: return std::make_unique<ZeroStage3>(mine);
      case Wrapper::plain:
      case Wrapper::fp16_fused:
      case Wrapper::fp16_unfused: return std::make_unique<DataParallel>(mine);
    }
    return nullptr;
  };
}

}  // namespace gradledger::deepspeed
