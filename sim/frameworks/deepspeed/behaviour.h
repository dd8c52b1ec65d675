// Behaviour is data: named switches, each with the values it took over the history of the framework and the change that moved it.
// A scenario's `as_of` resolves to one Behaviour; engines test one named condition where the difference lies.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sim/base/result.h"
#include "sim/frameworks/deepspeed/settings.h"
#include "sim/scenario/scenario.h"

namespace gradledger {

enum class Stage12Accumulator : std::uint8_t { averaged_gradients, split_tests_av, split_tests_l };
enum class ScaleSite : std::uint8_t { loss, output_hook, engine_loss };
enum class DirectEpilogue : std::uint8_t { none, hook_count, end_of_graph, end_of_sound_graph };
enum class Fp16Stage0Scale : std::uint8_t { applied, missing };
enum class Bf16EpilogueOrder : std::uint8_t { accumulate_then_reduce, reduce_then_accumulate };
enum class Bf16Fp32Wrapper : std::uint8_t { bf16_optimizer, fp16_unfused_optimizer };
enum class Bf16Stage0Accumulation : std::uint8_t { fp32_only, any, model_only };
enum class Bf16Stage0ZeroGrad : std::uint8_t { skipped, done };
enum class EpilogueClears : std::uint8_t { grad_and_accum, grad };
enum class Stage3IdIncrement : std::uint8_t { epilogue, forward };
enum class Stage3BucketAtStep : std::uint8_t { kept, cleared };
enum class OffloadKeep : std::uint8_t { counter_only, add_else_store, gate_ga, gate_id_or_not_boundary };
enum class StaleClear : std::uint8_t { none, zero };
enum class Stage1AttrReduction : std::uint8_t { kept, discarded };
enum class Stage2AccDtype : std::uint8_t { model, acc };
enum class SumOp : std::uint8_t { ignored, honoured };
enum class ScaleUpdate : std::uint8_t { before_unscale, after_unscale };
enum class ScaleGrowth : std::uint8_t { after_a_window, one_step_later };
enum class Coalesce : std::uint8_t { absent, available };
enum class UnmanagedAccumulation : std::uint8_t { absent, stages_0_and_1, up_to_stage_2, up_to_stage_3, with_offload };
enum class UnmanagedOverride : std::uint8_t { refused, honoured };
enum class ScaleWrtGas : std::uint8_t { honoured, ignored };
enum class CoalesceCounter : std::uint8_t { stands_still, moves };
enum class SeparateBuckets : std::uint8_t { reduced, dropped };
enum class TiedHook : std::uint8_t { per_use, once };
enum class OverlapProducerWait : std::uint8_t { none, earlier_reductions };
enum class OverlapBucketIndex : std::uint8_t { alternates, reset, reset_and_waits };
enum class OverlapLifetime : std::uint8_t { at_once, after_reduction };
enum class OverlapProducers : std::uint8_t { current_stream, every_stream };
enum class Stage3Producer : std::uint8_t { default_stream, current_stream };
enum class OffloadCopyStream : std::uint8_t { reduction, copy };
enum class MissingGradient : std::uint8_t { shifts, zeros };
enum class Stage1Missing : std::uint8_t { pushed, skipped };
enum class UnusedNorm : std::uint8_t { required, skipped };
enum class EmptyParameter : std::uint8_t { looked_up, skipped, left_out };
enum class EmptyBucket : std::uint8_t { reduced, skipped };
enum class ReleasedBucket : std::uint8_t { none, empty_list };
enum class SequenceDivisor : std::uint8_t { all_ranks, data_parallel };
enum class ExpertAverage : std::uint8_t { twice, by_its_ranks, with_the_bucket };
enum class ExpertDivisor : std::uint8_t { expert_data_parallel, data_parallel };
enum class PipelineScale : std::uint8_t { once, nowhere, each_stage };
enum class PipelineBackward : std::uint8_t { served, taken_for_direct };
enum class PipelineBoundary : std::uint8_t { kept_back, handed_over };
enum class SetGradientApi : std::uint8_t { absent, available };
enum class SetGradientNorm : std::uint8_t { kept, local_refreshed, refreshed };
enum class Bf16SetGradient : std::uint8_t { param_grad, accumulator };
enum class Bf16OverflowCheck : std::uint8_t { off, on };
enum class Bf16OverflowTest : std::uint8_t { never, configured };
enum class Stage1OverflowAgreement : std::uint8_t { partitioned_only, always };
enum class FusedStepReturn : std::uint8_t { on_overflow, always };
enum class NormMasking : std::uint8_t { multiply, where };
enum class NormAllReduce : std::uint8_t { twice, once };
enum class ReportedNormScale : std::uint8_t { updated, before_update };
enum class UnfusedReportedNorm : std::uint8_t { scaled, unscaled };
enum class Bf16UnscaleAndClip : std::uint8_t { done, skipped };
enum class Fp32ClipCoefficient : std::uint8_t { at_least_one, at_most_one };
enum class Bf16ReducedBuffer : std::uint8_t { param_grad, accumulator };
enum class Bf16MasterGradient : std::uint8_t { at_initialisation, at_step };
enum class Bf16ImmediateDefault : std::uint8_t { off, on };
enum class OwnerOfNothing : std::uint8_t { served, raises };
enum class Bf16HookLeaves : std::uint8_t { gradient, zeros, nothing };
enum class Bf16ZeroAccDefault : std::uint8_t { model, fp32 };
enum class Fp32Partition : std::uint8_t { absent, accumulates };
enum class Fp32PartitionWhenSkipped : std::uint8_t { kept, dropped };
enum class BucketKey : std::uint8_t { communication_dtype, model_dtype };
enum class Bf16Norm : std::uint8_t { above_zero, finite };
enum class Stage1AttrBucket : std::uint8_t { param_grad, grad_accum };
enum class BucketPayload : std::uint8_t { whole_buffer, filled };
enum class ExtraLargeKey : std::uint8_t { communication_dtype, model_dtype };
enum class Stage3Predivide : std::uint8_t { always, unless_one };
enum class Stage3ReducedDtype : std::uint8_t { model, acc };
enum class Stage3BucketStart : std::uint8_t { beginning, behind_the_last };
enum class PinMemoryDefault : std::uint8_t { off, on };
enum class Stage3MasterCopy : std::uint8_t { waited_for, follows_pin_memory };

struct Behaviour {
  Stage12Accumulator stage12_accumulator;
  ScaleSite scale_site;
  DirectEpilogue direct_epilogue;
  Fp16Stage0Scale fp16_st0_scale;
  Bf16EpilogueOrder order_bf16_epilogue;
  Bf16Fp32Wrapper bf16_acc_fp32_wrapper;
  Bf16Stage0Accumulation bf16_st0_accumulation;
  Bf16Stage0ZeroGrad bf16_st0_zero_grad;
  EpilogueClears stage12_epilogue_clears;
  Stage3IdIncrement stage3_id_increment;
  Stage3BucketAtStep stage3_bucket_at_step;
  OffloadKeep offload_keep;
  StaleClear stale_clear;
  Stage1AttrReduction stage1_attr_reduction;
  Stage2AccDtype stage2_acc_dtype;
  SumOp allreduce_op_sum;
  ScaleUpdate scale_update;
  ScaleGrowth scale_growth;
  Bf16OverflowCheck bf16_overflow_check_default;
  Bf16OverflowTest bf16_overflow_test;
  Stage1OverflowAgreement stage1_overflow_agreement;
  FusedStepReturn fused_step_return;
  NormMasking norm_masking;
  NormAllReduce norm_all_reduce;
  ReportedNormScale reported_norm_scale;
  UnfusedReportedNorm unfused_reported_norm;
  Bf16UnscaleAndClip bf16_unscale_and_clip;
  Fp32ClipCoefficient fp32_clip_coefficient;
  Coalesce coalesce;
  UnmanagedAccumulation unmanaged_accumulation;
  UnmanagedOverride unmanaged_override;
  ScaleWrtGas scale_wrt_gas_in_hook;
  SeparateBuckets separate_buckets;
  CoalesceCounter coalesce_micro_step_id;
  Bf16ReducedBuffer bf16_reduced_buffer;
  Bf16MasterGradient bf16_master_gradient;
  Bf16ImmediateDefault bf16_immediate_default;
  OwnerOfNothing owner_of_nothing;
  Bf16HookLeaves bf16_hook_leaves;
  Bf16ZeroAccDefault bf16_zero_acc_default;
  Stage1AttrBucket stage1_attr_bucket;
  Fp32Partition stage12_fp32_partition;
  Fp32PartitionWhenSkipped fp32_partition_when_skipped;
  BucketKey stage12_full_bucket_key;
  Bf16Norm bf16_norm;
  BucketPayload stage12_bucket_payload;
  ExtraLargeKey stage12_extra_large_key;
  Stage3Predivide stage3_predivide_multiplies;
  Stage3ReducedDtype stage3_reduced_dtype;
  Stage3BucketStart stage3_bucket_start;
  PinMemoryDefault pin_memory_default;
  Stage3MasterCopy stage3_master_copy;
  TiedHook tied_hook;
  OverlapProducerWait overlap_producer_wait;
  OverlapBucketIndex overlap_bucket_index;
  OverlapLifetime overlap_lifetime;
  OverlapProducers overlap_producers;
  Stage3Producer stage3_producer;
  OffloadCopyStream offload_copy_stream;
  MissingGradient missing_gradient;
  Stage1Missing stage1_missing_gradient;
  UnusedNorm unused_norm;
  EmptyParameter empty_parameter;
  EmptyBucket empty_bucket;
  ReleasedBucket released_bucket;
  SequenceDivisor sequence_divisor;
  ExpertAverage expert_average;
  ExpertDivisor expert_divisor;
  PipelineScale pipeline_scale;
  PipelineBackward pipeline_backward;
  PipelineBoundary pipeline_boundary;
  SetGradientApi set_gradient_api;
  SetGradientNorm set_gradient_norm;
  Bf16SetGradient bf16_set_gradient;

  bool operator==(const Behaviour&) const = default;
};

// One switch, for listings and for the schema.
struct SwitchInfo {
  struct Value {
    std::string_view name;
    std::string_view since;  // the change that brought it; "older", or "never" for a repair that no release has
  };
  std::string_view name;
  std::string_view meaning;
  std::vector<Value> values;
};

const std::vector<SwitchInfo>& switches();

// Errors: an unknown release or change, an unknown switch, a value that the switch does not have.
Result<Behaviour> resolve_behaviour(const AsOf& as_of);

// Stages 1 and 2: whether the elements behind the filled part of a bucket take part in its all-reduce.
bool reduces_whole_buckets(const DeepSpeedConfig& config, const Behaviour& behaviour);

// Offload of the optimizer: whether its host memory is pinned.
bool pins_host_memory(const DeepSpeedConfig& config, const Behaviour& behaviour);

// The value that a switch has in a behaviour, by name.
std::string_view switch_value(const Behaviour& behaviour, std::string_view switch_name);

}  // namespace gradledger
