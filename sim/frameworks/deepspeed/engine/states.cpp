// Of every engine: what of its state decides what it does next.
#include <algorithm>

#include "sim/frameworks/deepspeed/engine/bf16_optimizer.h"
#include "sim/frameworks/deepspeed/engine/data_parallel.h"
#include "sim/frameworks/deepspeed/engine/zero_stage3.h"
#include "sim/frameworks/deepspeed/engine/zero_stage_1_and_2.h"

namespace gradledger {

void DeepSpeedEngine::fold(StateFold& f) const {
  f.tensors(grad_);
  f.number(micro_steps_ % config().gradient_accumulation_steps);
  f.flag(override_boundary_);
  f.flag(override_before_coalescing_);
  f.flags({in_no_sync_, coalescing_, scale_wrt_gas_, in_step_, mirror_, stepped_, in_pipeline() && micro_steps_ > 0});
  hooks_.fold(f);
  f.number(explicit_forward_used_.size());
  f.flags(explicit_forward_used_);
}

void DataParallel::fold(StateFold& f) const {
  DeepSpeedEngine::fold(f);
  scaler_.fold(f);
}

void Bf16Optimizer::fold(StateFold& f) const {
  DeepSpeedEngine::fold(f);
  f.slices(gradients_);
  f.flags(has_gradients_);
}

void ZeroStage1And2::fold(StateFold& f) const {
  DeepSpeedEngine::fold(f);
  scaler_.fold(f);
  f.number(static_cast<std::uint64_t>(micro_step_id_));
  f.flags({ready_for_gradients_, had_buckets_, epilogue_ran_, bucket_.extra_large, all_grad_tensors_.has_value()});
  f.flags(already_reduced_);
  f.number(bucket_.elements);
  f.number(bucket_.index);
  f.number(bucket_.empty.size());
  for (const BucketEntry& entry : bucket_.entries) {
    f.number(entry.parameter);
    f.tensor(entry.gradient);
  }
  f.tensors(grad_accum_);
  f.tensor(grads_in_partition_);
  f.number(grads_in_partition_offset_);
  f.tensors(deferred_);
  if (all_grad_tensors_) f.tensors(*all_grad_tensors_);
  f.number(static_cast<std::uint64_t>(averaged_state_));
  f.tensors(averaged_);
  f.tensors(averaged_padding_);
  f.tensors(partition_sum_);
  f.flags(partition_known_);
  f.flag(all_grad_tensors_known_);
  f.tensors(accumulated_on_host_);
  f.flags(host_holds_window_);
  f.flags(norm_recorded_);
  f.slices(master_gradient_);
}

void ZeroStage3::fold(StateFold& f) const {
  DeepSpeedEngine::fold(f);
  scaler_.fold(f);
  f.number(micro_step_id_);
  f.flag(epilogue_ran_);
  f.number(bucket_elements_);
  for (const std::uint32_t p : bucket_) {
    f.number(p);
    f.slice(gradient_slice_[p]);
  }
  f.number(in_flight_.size());
  f.slice(partitions_);
  f.number(static_cast<std::uint64_t>(averaged_state_));
  f.flags(norm_recorded_);
  f.flags(stored_in_window_);
  for (const SubGroup& group : groups_) f.slice(group.master_gradient);
}

}  // namespace gradledger
