#include "sim/frameworks/torch/fsdp2/behaviour.h"

namespace gradledger::torch::fully_shard {
namespace {

constexpr std::string_view one_dimension = "Use a mesh of one dimension.";

Wrapper wrapper() {
  return {
      "fsdp2",
      "fully_shard",
      {{"final_reduction", "whose gradients the end of a backward reduces, where no hook of the module did", {{"of_unsharded_modules"}, {"of_unreduced_modules", "2.7.0"}}},
       {"all_reduced_memory", "mesh of two dimensions: whether what is all-reduced is held until the stream of the all-reduce has read it", {{"released"}, {"held", "2.6.0"}}},
       {"divide_factor",
        "what the divide factor that a loop sets stands for: of the reduce-scatter alone, so that an all-reduce and halved dtypes divide once more; of the whole average; "
        "the same, left to the collective where it is the number of shards",
        {{"of_reduce_scatter"}, {"of_average", "2.8.0"}, {"of_average_by_shards", "2.10.0"}}},
       {"offload_event",
        "CPU offload: the stream whose work the host waits for before it reads gradients; the last one is that of the all-reduce on a mesh of two dimensions",
        {{"reduce_scatter_stream"}, {"last_stream", "2.9.0"}}},
       {"one_rank_shard",
        "a shard group of one rank: whether its gradients go through a reduce-scatter, or are copied, and divided by a factor that a loop set",
        {{"reduced"}, {"copied", "2.10.0"}}},
       {"aborted_module",
        "a forward of a module whose backward was aborted: whether its weights are gathered, so that the loop goes on in silence and nothing is reduced, or it raises",
        {{"raises"}, {"gathered", "2.11.0"}}},
       {"gradient_dtype",
        "mixed precision: the dtype of reductions that no reduce_dtype names, and of a rank's own sum. Either both are as parameters compute, sums are cast to reduce_dtype "
        "behind a backward, and Tensor.grad_dtype is lost; or autograd adds up in the dtype of the reduction, which is the parameter's grad_dtype or its own dtype",
        {{"of_computation"}, {"of_parameter", "2.15.0"}}},
       {"partial_sums",
        "mesh of two dimensions: whether what was not reduced between replicas is added by its place in the buffer, or by parameter, with zeros where a micro-batch has nothing",
        {{"by_place"}, {"by_parameter", "2.15.0"}}},
       {"reset", "reset_iter_state: whether gradients stay, reduced and not, or go", {{"keeps_gradients"}, {"drops_gradients", "2.15.0"}}},
       {"root_after_forward",
        "the weights of the root behind a forward: they stay gathered, or do as reshard_after_forward says where it is given",
        {{"gathered"}, {"as_given", "2.8.0"}}}},
      {{"gradient_divide_factor", "2.5.0"},
       {"set_gradient_divide_factor", "2.5.0"},
       {"force_sum_reduction_for_comms", "2.8.0"},
       {"set_force_sum_reduction_for_comms", "2.8.0"},
       {"set_reshard_after_forward", "2.8.0"},
       {"reduce_scatter_unused_params", "2.13.0"},
       {"set_reduce_scatter_unused_params", "2.13.0"},
       {"reset_iter_state", "2.13.0"},
       {"param_dtype_override_fn", "2.15.0"},
       {"set_manual_backward_finalization", "2.15.0"},
       {"finalize_backward", "2.15.0"},
       {"wait_for_gradient_reduction", "2.15.0"}},
      {{"fsdp2-1", "final_reduction", "of_unsharded_modules", "of_unreduced_modules", "Reduce every backward, without no_sync."},
       {"newer-22", "divide_factor", "of_reduce_scatter", "of_average", one_dimension},
       {"fsdp2-2", "offload_event", "reduce_scatter_stream", "last_stream", one_dimension},
       {"zoo-42", "all_reduced_memory", "released", "held", one_dimension},
       {"newer-21", "gradient_dtype", "of_computation", "of_parameter", "Keep weights in fp32, and give MixedPrecisionPolicy param_dtype and reduce_dtype."},
       {"fsdp2-3", "partial_sums", "by_place", "by_parameter", "Call set_reduce_scatter_unused_params(True), as of 2.13."},
       {"fsdp2-4", "reset", "keeps_gradients", "drops_gradients"},
       {"fsdp2-5", "gradient_dtype", "of_computation", "of_parameter"}}};
}

template <class Enum>
void take(Watched<Enum>& field, const std::vector<std::uint8_t>& values, std::size_t row) {
  field = static_cast<Enum>(values[row]);
  field.place_at(row);
}

}  // namespace

const WrapperHistory& history() {
  static const WrapperHistory it(wrapper());
  return it;
}

Result<Behaviour> behaviour_at(const AsOf& as_of) {
  const auto values = history().resolve(as_of);
  if (!values) return values.error();
  Behaviour out;
  take(out.final_reduction, *values, 0);
  take(out.all_reduced_memory, *values, 1);
  take(out.divide_factor, *values, 2);
  take(out.offload_event, *values, 3);
  take(out.one_rank_shard, *values, 4);
  take(out.aborted_module, *values, 5);
  take(out.gradient_dtype, *values, 6);
  take(out.partial_sums, *values, 7);
  take(out.reset, *values, 8);
  take(out.root_after_forward, *values, 9);
  return out;
}

}  // namespace gradledger::torch::fully_shard
