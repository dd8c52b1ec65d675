#include "sim/frameworks/deepspeed/repairs.h"

namespace gradledger {
namespace {

constexpr std::string_view no_offload = "Keep the optimizer on the device, without offload_optimizer.";
constexpr std::string_view no_overlap = "Set overlap_comm to false.";
constexpr std::string_view no_blocks = "Leave out no_sync.";
constexpr std::string_view at_once = "Set bf16.immediate_grad_update to true.";
constexpr std::string_view model_dtype = "Leave out data_types.grad_accum_dtype.";
constexpr std::string_view static_scale = "Set a static loss_scale.";
constexpr std::string_view whole_reductions = "Set reduce_scatter to false.";

constexpr Repair table[] = {
    {"catalogue-2", "offload_keep", "add_else_store", "gate_ga", no_offload},
    {"catalogue-1", "offload_keep", "", "gate_id_or_not_boundary", no_offload},
    {"catalogue-4", "order_bf16_epilogue", "reduce_then_accumulate", "accumulate_then_reduce", at_once},
    {"catalogue-5", "stage12_accumulator", "split_tests_AV", "split_tests_L"},
    {"catalogue-6", "coalesce_micro_step_id", "moves", "stands_still"},
    {"catalogue-7", "scale_wrt_gas_in_hook", "ignored", "honoured"},
    {"catalogue-8", "pipeline_scale", "each_stage", "once"},
    {"catalogue-43", "pipeline_scale", "nowhere", "once"},
    {"catalogue-9", "bf16_st0_zero_grad", "skipped", "done"},
    {"catalogue-10", "bf16_reduced_buffer", "param_grad", "accumulator"},
    {"catalogue-11", "fused_step_return", "always", "on_overflow"},
    {"catalogue-12", "stage1_overflow_agreement", "partitioned_only", "always"},
    {"catalogue-13", "bf16_overflow_test", "never", "configured"},
    {"catalogue-13", "bf16_overflow_check_default", "off", "on"},
    {"catalogue-14", "reported_norm_scale", "updated", "before_update"},
    {"catalogue-15", "norm_masking", "multiply", "where"},
    {"catalogue-16", "bf16_unscale_and_clip", "skipped", "done"},
    {"catalogue-17", "fp32_clip_coefficient", "at_least_one", "at_most_one"},
    {"catalogue-18", "set_gradient_norm", "kept", "local_refreshed"},
    {"catalogue-19", "missing_gradient", "shifts", "zeros"},
    {"catalogue-20", "stage1_missing_gradient", "pushed", "skipped"},
    {"catalogue-21", "unused_norm", "required", "skipped"},
    {"catalogue-22", "pipeline_boundary", "kept_back", "handed_over"},
    {"catalogue-23", "stage1_attr_bucket", "param_grad", "grad_accum"},
    {"catalogue-24", "bf16_zero_acc_default", "fp32", "model"},
    {"catalogue-25", "bf16_master_gradient", "at_initialisation", "at_step"},
    {"catalogue-27", "expert_average", "", "with_the_bucket"},
    {"catalogue-27", "expert_divisor", "expert_data_parallel", "data_parallel"},
    {"catalogue-28", "sequence_divisor", "all_ranks", "data_parallel"},
    {"catalogue-30", "overlap_bucket_index", "reset", "alternates", no_overlap},
    {"catalogue-31", "overlap_producer_wait", "none", "earlier_reductions", no_overlap},
    {"catalogue-32", "overlap_producers", "current_stream", "every_stream"},
    {"catalogue-33", "stage3_producer", "default_stream", "current_stream"},
    {"zoo-17", "overlap_lifetime", "at_once", "after_reduction", no_overlap},
    {"catalogue-34", "direct_epilogue", "hook_count", "end_of_graph"},
    {"catalogue-35", "stage12_extra_large_key", "model_dtype", "communication_dtype"},
    {"catalogue-36", "tied_hook", "per_use", "once"},
    {"catalogue-37", "empty_parameter", "looked_up", "skipped"},
    {"catalogue-38", "stage3_reduced_dtype", "model", "acc"},
    {"catalogue-39", "norm_all_reduce", "twice", "once"},
    {"catalogue-40", "scale_site", "loss", "output_hook", no_blocks},
    {"catalogue-44", "pipeline_backward", "taken_for_direct", "served"},
    {"catalogue-47", "stage3_bucket_start", "behind_the_last", "beginning"},
    {"catalogue-49", "stage12_full_bucket_key", "model_dtype", "communication_dtype"},
    {"catalogue-50", "owner_of_nothing", "raises", "served"},
    {"catalogue-53", "bf16_acc_fp32_wrapper", "FP16_UnfusedOptimizer", "BF16_Optimizer"},
    {"catalogue-53", "bf16_st0_accumulation", "any", "fp32_only"},
    {"live-1", "fp16_st0_scale", "missing", "applied"},
    {"live-2", "stage1_attr_reduction", "discarded", "kept", model_dtype},
    {"live-5", "stale_clear", "none", "zero", {}, 1, 2},
    {"live-5b", "stale_clear", "none", "zero", {}, 3, 3},
    {"live-9", "scale_update", "before_unscale", "after_unscale", static_scale},
    {"live-11", "stage2_acc_dtype", "model", "acc"},
    {"live-15", "unfused_reported_norm", "scaled", "unscaled"},
    {"live-21", "set_gradient_norm", "", "refreshed"},
    {"live-22", "bf16_set_gradient", "param_grad", "accumulator"},
    {"live-26", "fused_expert_norm", "masters", "gradients"},
    {"live-34", "master_first_step", "taken", "not_taken"},
    {"live-35", "muon_loss_scale", "kept", "divided_out", static_scale},
    {"live-36", "unfused_cut_norm", "first_part", "all_parts"},
    {"live-38", "dealt_links", "as_given", "as_dealt"},
    {"catalogue-51", "muon_staging", "none", "by_partition"},
    {"catalogue-52", "muon_staging", "by_matrix", "by_partition"},
    {"zoo-22", "muon_reduce_scatter", "own_part_reduced", "whole", whole_reductions},
    {"newer-9", "muon_takes_in", "each_reduction", "each_step"},
};

}  // namespace

std::span<const Repair> repairs() { return table; }

}  // namespace gradledger
