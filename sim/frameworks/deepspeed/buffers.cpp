// The buffers that DeepSpeed's wrappers allocate, by the framework's names.
#include "sim/frameworks/deepspeed/buffers.h"

#include <vector>

namespace gradledger::deepspeed {

std::span<const BufferFamily> buffer_families() {
  static const std::vector<BufferFamily> families{
      {"*", BufferPurpose::weights, "stage 0", "a parameter, in the model dtype"},
      {"*.grad", BufferPurpose::gradients, "all", "what autograd accumulates, in the model dtype"},
      {"*.grad_accum", BufferPurpose::accumulators, "ZeRO 1 and 2", "the grad-accum attribute, in grad_accum_dtype"},
      {"*.grad_accum.to(model)", BufferPurpose::buckets, "ZeRO 1 and 2", "that attribute cast for the bucket"},
      {"accumulated_grads_in_cpu", BufferPurpose::accumulators, "ZeRO 1 and 2, offload", "host accumulator of a parameter"},
      {"all_grad_tensors", BufferPurpose::accumulators, "ZeRO 2 as it should be", "accumulator of an owned parameter, where it is not in the model dtype"},
      {"averaged_gradients", BufferPurpose::accumulators, "ZeRO 1 and 2", "the rank's partition of reduced gradients, where that is in fp32 beside 16-bit parameters"},
      {"averaged_gradients.padding", BufferPurpose::accumulators, "ZeRO 1 and 2", "zeros that fill the last partition"},
      {"bit16_groups_flat", BufferPurpose::weights, "BF16_Optimizer, ZeRO 1 and 2", "all parameters, flat and padded"},
      {"bucket_in_communication_dtype", BufferPurpose::buckets, "ZeRO 1 and 2", "a bucket cast for its collective"},
      {"ds_tensor", BufferPurpose::weights, "ZeRO 3", "the rank's partition of a parameter; with offload_param on the host"},
      {"ds_tensor on device", BufferPurpose::weights, "ZeRO 3, offload_param", "its copy for a gather"},
      {"exp_avg", BufferPurpose::optimizer_state, "all with Adam", "first moment"},
      {"exp_avg_sq", BufferPurpose::optimizer_state, "all with Adam", "second moment"},
      {"flattened_bucket", BufferPurpose::buckets, "ZeRO 1 and 2", "a bucket of gradients, flat"},
      {"flattened_gradients", BufferPurpose::buckets, "stage 0, BF16_Optimizer", "gradients of a bucket, flat, for the all-reduce"},
      {"fp32_groups", BufferPurpose::master_weights, "stage 0 with 16-bit parameters", "master weights and their gradients"},
      {"fp32_groups_flat_partition", BufferPurpose::master_weights, "BF16_Optimizer", "the rank's master weights and their gradient"},
      {"fp32_groups_gradients_flat", BufferPurpose::accumulators, "BF16_Optimizer", "accumulator of all parameters, in grad_accum_dtype"},
      {"fp32_partitioned_groups_flat", BufferPurpose::master_weights, "ZeRO 3", "a sub-group's master weights and their gradient"},
      {"fp32_grad", BufferPurpose::buckets, "ZeRO 3", "set_gradient: the rank's partition of a gradient"},
      {"gathered weights", BufferPurpose::weights, "ZeRO 3", "a whole parameter for its module, where ranks may run others or end"},
      {"grad_buffer on device", BufferPurpose::buckets, "ZeRO 3, offload", "the host accumulator, brought back to add to it"},
      {"grad_partition of *", BufferPurpose::buckets, "ZeRO 3", "the rank's partition of a reduced gradient"},
      {"grad_partitions_flat_buffer", BufferPurpose::accumulators, "ZeRO 3", "accumulator of the rank's partitions"},
      {"gradients_in_communication_dtype", BufferPurpose::buckets, "stage 0, BF16_Optimizer", "that flat bucket cast for its collective"},
      {"grads_in_partition", BufferPurpose::accumulators, "ZeRO 1 and 2", "reduced gradients of the rank's parameters, out of the bucket"},
      {"interleaved_partitions", BufferPurpose::buckets, "ZeRO 3", "input of the reduce-scatter"},
      {"ipg_bucket", BufferPurpose::buckets, "ZeRO 3", "contiguous bucket"},
      {"ipg_buffer", BufferPurpose::buckets, "ZeRO 1 and 2", "contiguous bucket; two where communication overlaps"},
      {"length of the recording", BufferPurpose::scalars, "ZeRO 3", "how many modules a rank recorded, likewise"},
      {"momentum_buffer", BufferPurpose::optimizer_state, "ZeRO 1 to 3 with Muon", "momentum: at stages 1 and 2 of whole matrices that the rank owns a part of"},
      {"momentum_buffer, staged", BufferPurpose::optimizer_state, "ZeRO 1 and 2 with Muon", "the same as it will be if the step updates; since 0.19.7"},
      {"norm", BufferPurpose::scalars, "all", "gradient norm"},
      {"norm / world", BufferPurpose::scalars, "stage 0", "the norm's share of a rank"},
      {"norm of the experts", BufferPurpose::scalars, "BF16_Optimizer", "gradient norm of the experts"},
      {"norm_for_param_grads", BufferPurpose::scalars, "ZeRO 1 and 2 with offload, ZeRO 3", "norms recorded as gradients arrive"},
      {"norm_groups", BufferPurpose::scalars, "ZeRO 1 and 2, several groups", "norm of each group"},
      {"norm_squared", BufferPurpose::scalars, "all", "sum of squares"},
      {"norm_squared of all sub-groups", BufferPurpose::scalars, "ZeRO 3", "sum of squares over the sub-groups"},
      {"norms", BufferPurpose::scalars, "stage 0, fp32", "norm of each gradient"},
      {"overflow", BufferPurpose::scalars, "stage 0, ZeRO", "flag: a gradient is not finite"},
      {"reduce_buffer", BufferPurpose::buckets, "BF16_Optimizer, ZeRO", "set_gradient: a whole gradient"},
      {"share of the momentum", BufferPurpose::optimizer_state, "ZeRO 1 to 3 with Muon", "what goes in, times one minus the momentum's share"},
      {"single_partition_of_fp32_groups", BufferPurpose::master_weights, "ZeRO 1 and 2", "the rank's master weights and their gradient"},
      {"temp_grad_buffer_for_gpu_offload", BufferPurpose::buckets, "ZeRO 1 and 2, offload", "the host accumulator, brought back to add to it"},
      {"zeros", BufferPurpose::accumulators, "ZeRO 1 and 2", "gradient of a parameter without one"},
  };
  return families;
}

}  // namespace gradledger::deepspeed
