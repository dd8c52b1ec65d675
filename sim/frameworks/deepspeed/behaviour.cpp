#include "sim/frameworks/deepspeed/behaviour.h"

#include <functional>
#include <optional>

#include "sim/frameworks/deepspeed/settings.h"
#include "sim/scenario/json_reader.h"

namespace gradledger {
namespace {

struct ValueRow {
  std::string_view name;
  std::optional<Change> since;  // absent: the oldest value, or one that no release has
  bool hypothetical = false;
};

// Reads and writes one field of Behaviour as the index of its value.
struct SwitchRow {
  std::string_view name;
  std::string_view meaning;
  std::vector<ValueRow> values;  // in the order of the enumeration
  std::function<void(Behaviour&, std::uint8_t)> set;
  std::function<std::uint8_t(const Behaviour&)> get;
  std::uint8_t oldest = 0;  // the value before every change
};

template <class Enum>
SwitchRow row(std::string_view name, Enum Behaviour::*field, std::string_view meaning, std::vector<ValueRow> values,
              std::uint8_t oldest = 0) {
  return {name, meaning, std::move(values), [field](Behaviour& b, std::uint8_t v) { b.*field = static_cast<Enum>(v); },
          [field](const Behaviour& b) { return static_cast<std::uint8_t>(b.*field); }, oldest};
}

const std::vector<SwitchRow>& rows() {
  using enum Change;
  static const std::vector<SwitchRow> table{
      row("stage12_accumulator", &Behaviour::stage12_accumulator,
          "which list stages 1 and 2 accumulate in, and which list they test for emptiness",
          {{"averaged_gradients", {}}, {"split_tests_AV", pr7509}, {"split_tests_L", pr7665}}),
      row("scale_site", &Behaviour::scale_site,
          "where 1/gradient_accumulation_steps is applied: to the loss, or in a hook on the outputs of the module",
          {{"loss", {}}, {"output_hook", pr7665}, {"engine_loss", pr8245}}),
      row("direct_epilogue", &Behaviour::direct_epilogue, "whether loss.backward() ends as engine.backward(loss) does, and what it tells its end by",
          {{"none", {}}, {"hook_count", pr7665}, {"end_of_graph", pr7780}, {"end_of_sound_graph", pr8245}}),
      row("fp16_st0_scale", &Behaviour::fp16_st0_scale, "whether the loss scale reaches the loss at stage 0",
          {{"applied", {}}, {"missing", pr7665}}),
      row("order_bf16_epilogue", &Behaviour::order_bf16_epilogue,
          "BF16_Optimizer at a boundary backward: accumulate and all-reduce, or the other way round",
          {{"accumulate_then_reduce", pr7985}, {"reduce_then_accumulate", pr7665}}),
      row("bf16_acc_fp32_wrapper", &Behaviour::bf16_acc_fp32_wrapper, "which wrapper serves stage 1, bf16, fp32 accumulation",
          {{"BF16_Optimizer", pr7788}, {"FP16_UnfusedOptimizer", pr7515}}),
      row("bf16_st0_accumulation", &Behaviour::bf16_st0_accumulation, "stage 0 bf16: which accumulation dtypes are served",
          {{"fp32_only", {}}, {"any", pr7515}, {"model_only", pr7788}}),
      row("bf16_st0_zero_grad", &Behaviour::bf16_st0_zero_grad,
          "stage 0 bf16: whether gradients are zeroed after the step; with skipped goes a scale of 65536 in the step",
          {{"skipped", {}}, {"done", pr7839}}),
      row("stage12_epilogue_clears", &Behaviour::stage12_epilogue_clears,
          "stages 1 and 2: whether param.grad_accum goes with param.grad in the epilogue, or at the next forward",
          {{"grad_and_accum", {}}, {"grad", pr7780}}),
      row("stage3_id_increment", &Behaviour::stage3_id_increment, "stage 3: where micro_step_id moves",
          {{"epilogue", {}}, {"forward", pr7780}}),
      row("stage3_bucket_at_step", &Behaviour::stage3_bucket_at_step, "stage 3: what a step does to a bucket that a backward left filled",
          {{"kept", {}}, {"cleared", pr7780}}),
      row("offload_keep", &Behaviour::offload_keep, "stages 1 and 2 with CPU offload: when the host accumulator is added and stored",
          {{"counter_only", {}}, {"add_else_store", pr6550}, {"gate_ga", pr7967}, {"gate_id_or_not_boundary", pr7981}}),
      row("stale_clear", &Behaviour::stale_clear, "whether host accumulators and stage-3 partitions are cleared after a step",
          {{"none", {}}, {"zero", {}, true}}),
      row("stage1_attr_reduction", &Behaviour::stage1_attr_reduction,
          "stage 1 with fp32 grad_accum: whether the reduced values are kept or a discarded temporary",
          {{"kept", {}, true}, {"discarded", {}}}, 1),
      row("stage2_acc_dtype", &Behaviour::stage2_acc_dtype, "stage 2: the dtype of its accumulator on the device",
          {{"model", {}}, {"acc", {}, true}}),
      row("allreduce_op_sum", &Behaviour::allreduce_op_sum, "whether gradient_allreduce_op \"sum\" has an effect",
          {{"ignored", {}}, {"honoured", pr8232}}),
      row("scale_update", &Behaviour::scale_update, "dynamic loss scale: moved before or after the gradients are unscaled",
          {{"before_unscale", {}}, {"after_unscale", {}, true}}),
      row("scale_growth", &Behaviour::scale_growth,
          "stages 1 to 3, dynamic loss scale: whether it doubles at the last step of loss_scale_window steps without overflow, or at the one after",
          {{"after_a_window", {}}, {"one_step_later", pr6976}}),
      row("bf16_overflow_check_default", &Behaviour::bf16_overflow_check_default, "default of bf16.check_grad_overflow",
          {{"off", {}}, {"on", pr8035}}),
      row("bf16_overflow_test", &Behaviour::bf16_overflow_test, "stages 1 and 2 bf16: whether an overflow is looked for at all",
          {{"never", {}}, {"configured", pr6976}}),
      row("stage1_overflow_agreement", &Behaviour::stage1_overflow_agreement, "stage 1: whether ranks agree on an overflow",
          {{"partitioned_only", pr6976}, {"always", pr7580}}, 1),
      row("fused_step_return", &Behaviour::fused_step_return, "FP16_Optimizer: when a step returns before it updates",
          {{"on_overflow", pr7645}, {"always", pr7515}}),
      row("norm_masking", &Behaviour::norm_masking, "stages 1 to 3: how a norm that is not finite is replaced by -1",
          {{"multiply", {}}, {"where", pr7171}}),
      row("norm_all_reduce", &Behaviour::norm_all_reduce, "stages 1 and 2: how often the sum of squares is summed over the world",
          {{"twice", {}}, {"once", pr551}}),
      row("reported_norm_scale", &Behaviour::reported_norm_scale, "stages 1 and 2: the loss scale that the reported norm is divided by",
          {{"updated", {}}, {"before_update", pr2695}}),
      row("unfused_reported_norm", &Behaviour::unfused_reported_norm, "FP16_UnfusedOptimizer: whether the loss scale is taken out of the reported norm",
          {{"scaled", {}}, {"unscaled", {}, true}}),
      row("bf16_unscale_and_clip", &Behaviour::bf16_unscale_and_clip, "stages 1 and 2 bf16: whether gradients are unscaled and clipped",
          {{"done", pr3790}, {"skipped", pr3166}}),
      row("fp32_clip_coefficient", &Behaviour::fp32_clip_coefficient, "stage 0 fp32: the limit of the clip coefficient",
          {{"at_least_one", {}}, {"at_most_one", pr5150}}),
      row("coalesce", &Behaviour::coalesce, "whether the engine has coalesce_grad_reduction", {{"absent", {}}, {"available", pr7992}}),
      row("unmanaged_accumulation", &Behaviour::unmanaged_accumulation,
          "where managed_gradient_accumulation false is served; absent: the key is ignored",
          {{"absent", {}}, {"stages_0_and_1", pr8184}, {"up_to_stage_2", pr8203}, {"up_to_stage_3", pr8217}, {"with_offload", pr8225}}),
      row("unmanaged_override", &Behaviour::unmanaged_override, "whether an unmanaged engine lets set_gradient_accumulation_boundary decide",
          {{"refused", {}}, {"honoured", {}, true}}),
      row("scale_wrt_gas_in_hook", &Behaviour::scale_wrt_gas_in_hook, "whether backward(scale_wrt_gas=False) keeps the output hook from dividing",
          {{"honoured", pr7724}, {"ignored", pr7665}}),
      row("separate_buckets", &Behaviour::separate_buckets,
          "stages 1 and 2 without contiguous_gradients: whether buckets are reduced; dropped: what a CPU accelerator does, whose tensor types match none",
          {{"reduced", {}}, {"dropped", {}, true}}),
      row("coalesce_micro_step_id", &Behaviour::coalesce_micro_step_id, "stage 3: whether micro_step_id moves inside a coalesced block",
          {{"stands_still", {}}, {"moves", {}, true}}),
      row("bf16_reduced_buffer", &Behaviour::bf16_reduced_buffer, "BF16_Optimizer at a boundary: what is all-reduced",
          {{"param_grad", {}}, {"accumulator", pr5170}}),
      row("bf16_master_gradient", &Behaviour::bf16_master_gradient,
          "BF16_Optimizer, accumulation in another dtype than fp32: when the masters are given their gradient",
          {{"at_initialisation", {}}, {"at_step", pr6485}}),
      row("bf16_immediate_default", &Behaviour::bf16_immediate_default, "default of bf16.immediate_grad_update", {{"off", pr6976}, {"on", pr4975}}),
      row("owner_of_nothing", &Behaviour::owner_of_nothing, "stages 1 and 2 without offload: whether a rank that owns no parameter gets through a boundary",
          {{"served", pr7700}, {"raises", pr7509}}),
      row("bf16_hook_leaves", &Behaviour::bf16_hook_leaves, "BF16_Optimizer, immediate_grad_update: what the hook leaves in param.grad",
          {{"gradient", pr6508}, {"zeros", pr5328}, {"nothing", in_0_19_8}}),
      row("bf16_norm", &Behaviour::bf16_norm, "BF16_Optimizer: the norm that a step asks for; one above zero, or it raises; a finite one, or it is skipped",
          {{"above_zero", {}}, {"finite", in_0_19_8}}),
      row("bf16_zero_acc_default", &Behaviour::bf16_zero_acc_default, "stages 1 to 3, bf16: the accumulation dtype where none is given",
          {{"model", pr2566}, {"fp32", pr2512}}),
      row("stage1_attr_bucket", &Behaviour::stage1_attr_bucket, "stage 1 with fp32 grad_accum: what a contiguous bucket is filled from",
          {{"param_grad", {}}, {"grad_accum", pr4084}}),
      row("stage12_fp32_partition", &Behaviour::stage12_fp32_partition,
          "stages 1 and 2, 16-bit model accumulating in fp32: whether every reduction adds to an fp32 partition of the rank, which then is averaged_gradients",
          {{"absent", {}}, {"accumulates", in_0_19_8}}),
      row("fp32_partition_when_skipped", &Behaviour::fp32_partition_when_skipped, "that partition with CPU offload: whether a step that is skipped lets go of it",
          {{"kept", {}}, {"dropped", {}, true}}),
      row("stage12_full_bucket_key", &Behaviour::stage12_full_bucket_key, "stages 1 and 2: the dtype under which a full bucket is looked up",
          {{"communication_dtype", pr7636}, {"model_dtype", pr6993}}),
      row("stage12_bucket_payload", &Behaviour::stage12_bucket_payload,
          "stages 1 and 2, contiguous without reduce_scatter: how much of a bucket is reduced", {{"whole_buffer", {}}, {"filled", pr5268}}),
      row("stage12_extra_large_key", &Behaviour::stage12_extra_large_key,
          "stages 1 and 2: the dtype under which a parameter larger than the bucket is looked up",
          {{"communication_dtype", pr7660}, {"model_dtype", pr6993}}),
      row("stage3_predivide_multiplies", &Behaviour::stage3_predivide_multiplies,
          "stage 3: whether a reduced gradient is multiplied by gradient_predivide_factor 1 as well",
          {{"always", {}}, {"unless_one", pr3630}}),
      row("stage3_reduced_dtype", &Behaviour::stage3_reduced_dtype,
          "stage 3: the dtype that a reduced gradient is cast to where it was communicated in another than the model's",
          {{"model", {}}, {"acc", pr8056}}),
      row("stage3_bucket_start", &Behaviour::stage3_bucket_start, "stage 3: where a bucket is filled from once it was reduced",
          {{"beginning", pr7418}, {"behind_the_last", pr6993}}),
      row("pin_memory_default", &Behaviour::pin_memory_default, "default of offload_optimizer.pin_memory", {{"off", {}}, {"on", pr8207}}),
      row("stage3_master_copy", &Behaviour::stage3_master_copy,
          "stage 3 with CPU offload: whether the host waits for the copy of a pinned partition to the master gradient",
          {{"waited_for", {}}, {"follows_pin_memory", pr8207}}),
      row("tied_hook", &Behaviour::tied_hook, "whether the hook of a tied parameter runs at each of its uses or once, when all have been added up",
          {{"per_use", {}, true}, {"once", {}}}, 1),
      row("overlap_producer_wait", &Behaviour::overlap_producer_wait,
          "stages 1 and 2 with overlap_comm: what a bucket's next producer waits for; each reduces from two buffers in turn",
          {{"none", {}}, {"earlier_reductions", pr5606}}),
      row("overlap_bucket_index", &Behaviour::overlap_bucket_index,
          "stages 1 and 2 with overlap_comm: whether the two buffers alternate, or clearing a bucket goes back to the first of them",
          {{"alternates", pr7805}, {"reset", pr6993}, {"reset_and_waits", pr7371}}),
      row("overlap_lifetime", &Behaviour::overlap_lifetime,
          "stages 1 and 2 with overlap_comm: whether memory that a reduction uses is free when the host lets go of it, or when the reduction is over",
          {{"at_once", {}}, {"after_reduction", pr7965}}),
      row("overlap_producers", &Behaviour::overlap_producers,
          "stages 1 and 2 with overlap_comm: which streams a reduction waits for, of those that wrote into the bucket",
          {{"current_stream", {}}, {"every_stream", pr8080}}),
      row("stage3_producer", &Behaviour::stage3_producer, "stage 3: which stream the reduction waits for before it takes a gradient",
          {{"default_stream", {}}, {"current_stream", pr7898}}),
      row("offload_copy_stream", &Behaviour::offload_copy_stream,
          "stages 1 and 2 with CPU offload, without overlap_comm: the stream of the copies to the host",
          {{"reduction", {}}, {"copy", {}, true}}),
      row("missing_gradient", &Behaviour::missing_gradient,
          "stages 1 and 2: a parameter without a gradient is left out of the flat partition, or is zeros there",
          {{"shifts", {}}, {"zeros", pr545}}),
      row("stage1_missing_gradient", &Behaviour::stage1_missing_gradient, "stage 1: whether a parameter without a gradient is pushed to the bucket",
          {{"pushed", {}}, {"skipped", pr1273}}),
      row("unused_norm", &Behaviour::unused_norm, "stages 1 and 2 with CPU offload: whether every owned parameter must have recorded a norm",
          {{"required", {}}, {"skipped", pr1039}}),
      row("empty_parameter", &Behaviour::empty_parameter, "stages 1 and 2: whether the owner of a parameter without elements is looked up, or has a place at all",
          {{"looked_up", {}}, {"skipped", pr8280}, {"left_out", in_0_19_8}}),
      row("empty_bucket", &Behaviour::empty_bucket, "stages 1 and 2: whether a bucket that nothing was pushed to is reduced",
          {{"reduced", {}}, {"skipped", pr5868}}),
      row("released_bucket", &Behaviour::released_bucket, "stages 1 and 2: what a reduction that no backward came before finds in place of the bucket",
          {{"none", {}}, {"empty_list", pr6993}}),
      row("sequence_divisor", &Behaviour::sequence_divisor, "stage 0 and BF16_Optimizer: whether ranks that share a sequence count as one in the average",
          {{"all_ranks", {}}, {"data_parallel", pr5555}}),
      row("expert_average", &Behaviour::expert_average, "stages 1 and 2: whether a bucket with experts is divided gradient by gradient, once or twice, or as every other",
          {{"twice", {}}, {"by_its_ranks", pr4957}, {"with_the_bucket", pr6546}}),
      row("expert_divisor", &Behaviour::expert_divisor, "stage 0: what the sum over an expert's ranks is divided by, their number or that of all",
          {{"expert_data_parallel", {}}, {"data_parallel", pr5259}}),
      row("pipeline_scale", &Behaviour::pipeline_scale, "pipeline: whether 1/gradient_accumulation_steps is applied once, nowhere or again in each stage",
          {{"once", pr8154}, {"nowhere", pr6675}, {"each_stage", pr7665}}),
      row("pipeline_backward", &Behaviour::pipeline_backward,
          "pipeline: what the engine takes the backward of a stage before the last for: one of its own, or a direct one that it refuses where those are refused",
          {{"served", pr7787}, {"taken_for_direct", pr7665}}),
      row("pipeline_boundary", &Behaviour::pipeline_boundary, "pipeline: whether the optimizer hears of the boundary, or takes every micro-batch for one, in the last stage none",
          {{"kept_back", {}}, {"handed_over", pr1264}}),
      row("set_gradient_api", &Behaviour::set_gradient_api, "whether users can set a gradient: safe_set_full_grad, safe_set_local_grad",
          {{"absent", {}}, {"available", pr6590}}),
      row("set_gradient_norm", &Behaviour::set_gradient_norm,
          "stages 1 to 3 with CPU offload: whether setting a gradient refreshes its recorded norm; local_refreshed: at stage 3 safe_set_local_grad does",
          {{"kept", {}}, {"local_refreshed", pr7302}, {"refreshed", {}, true}}),
      row("bf16_set_gradient", &Behaviour::bf16_set_gradient, "BF16_Optimizer: what a gradient that is set goes to",
          {{"param_grad", {}}, {"accumulator", {}, true}}),
  };
  return table;
}

std::string_view change_name(Change change) { return changes()[static_cast<std::size_t>(change)].name; }

Behaviour at(PointInHistory point) {
  Behaviour behaviour{};
  for (const SwitchRow& r : rows()) {
    std::uint8_t value = r.oldest;
    std::optional<Change> latest;
    for (std::uint8_t v = 0; v < r.values.size(); ++v) {
      const auto& since = r.values[v].since;
      if (since && point.contains(*since) && (!latest || *since > *latest)) {
        latest = since;
        value = v;
      }
    }
    r.set(behaviour, value);
  }
  return behaviour;
}

}  // namespace

const std::vector<SwitchInfo>& switches() {
  static const std::vector<SwitchInfo> infos = [] {
    std::vector<SwitchInfo> out;
    for (const SwitchRow& r : rows()) {
      SwitchInfo info{r.name, r.meaning, {}};
      for (std::uint8_t v = 0; v < r.values.size(); ++v)
        info.values.push_back({r.values[v].name, r.values[v].hypothetical ? "never" : r.values[v].since ? change_name(*r.values[v].since) : "older"});
      out.push_back(std::move(info));
    }
    return out;
  }();
  return infos;
}

namespace {

Result<Behaviour> resolve(const AsOf& as_of) {
  const auto point = point_named(as_of.base, as_of.switches.empty() ? "/engine/as_of" : "/engine/as_of/base");
  if (!point) return point.error();
  Behaviour behaviour = at(*point);
  for (const auto& [name, value] : as_of.switches) {
    const std::string where = "/engine/as_of/" + pointer_token(name);
    const SwitchRow* found = nullptr;
    std::string names;
    for (const SwitchRow& r : rows()) {
      if (r.name == name) found = &r;
      names += (names.empty() ? "" : ", ") + std::string(r.name);
    }
    if (!found) return InputError{where, "unknown switch; expected base or one of " + names};
    std::optional<std::uint8_t> index;
    std::string values;
    for (std::uint8_t v = 0; v < found->values.size(); ++v) {
      if (found->values[v].name == value) index = v;
      values += (values.empty() ? "" : ", ") + std::string(found->values[v].name);
    }
    if (!index) return InputError{where, "unknown value \"" + value + "\"; expected one of " + values};
    found->set(behaviour, *index);
  }
  return behaviour;
}

}  // namespace

// A campaign asks for the same state of the code again and again.
Result<Behaviour> resolve_behaviour(const AsOf& as_of) {
  thread_local std::optional<std::pair<AsOf, Result<Behaviour>>> latest;
  if (!latest || !(latest->first == as_of)) latest.emplace(as_of, resolve(as_of));
  return latest->second;
}

bool reduces_whole_buckets(const DeepSpeedConfig& config, const Behaviour& behaviour) {
  const bool contiguous = config.zero.contiguous_gradients || config.offloads_optimizer();
  return (config.zero.stage == 1 || config.zero.stage == 2) && contiguous && !config.zero.reduce_scatter &&
         behaviour.stage12_bucket_payload == BucketPayload::whole_buffer;
}

bool pins_host_memory(const DeepSpeedConfig& config, const Behaviour& behaviour) {
  return config.zero.offload_pin_memory.value_or(behaviour.pin_memory_default == PinMemoryDefault::on);
}

std::string_view switch_value(const Behaviour& behaviour, std::string_view switch_name) {
  for (const SwitchRow& r : rows())
    if (r.name == switch_name) return r.values[r.get(behaviour)].name;
  expects(false, "a switch that does not exist");
  return {};
}

}  // namespace gradledger
