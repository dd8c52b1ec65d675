#include "sim/frameworks/torch/ddp/errors.h"

#include "sim/frameworks/torch/scalar_types.h"

namespace gradledger::torch {
namespace {

const std::string prior = "Expected to have finished reduction in the prior iteration before starting a new one. This error indicates that your ";
const std::string all_outputs = "making sure all `forward` function outputs participate in calculating loss. ";
const std::string outputs_not_found =
    "\nIf you already have done the above, then the distributed data parallel module wasn't able to locate the output tensors in the return value of "
    "your module's `forward` function. Please include the loss function and the structure of the return value of `forward` of your module when "
    "reporting this issue (e.g. list, dict, iterable).";
const std::string how_to_see_more =
    "\n In addition, you can set the environment variable TORCH_DISTRIBUTED_DEBUG to either INFO or DETAIL to print out information about which "
    "particular parameters did not receive gradient on this rank as part of this error";

std::string reason(const DdpConfig& config) {
  if (config.static_graph)
    return prior +
           "training graph has changed in this iteration, e.g., one parameter is used in first iteration, but then got unused in the second iteration. "
           "this is not compatible with static_graph set to True.";
  const std::string unused = prior + "module has parameters that were not used in producing loss. ";
  if (config.find_unused_parameters)
    return unused + "Since `find_unused_parameters=True` is enabled, this likely  means that not all `forward` outputs participate in computing loss. " + "You can fix this by " +
           all_outputs + outputs_not_found;
  return unused +
         "You can enable unused parameter detection by passing the keyword argument `find_unused_parameters=True` to "
         "`torch.nn.parallel.DistributedDataParallel`, and by \n" +
         all_outputs + outputs_not_found;
}

}  // namespace

FrameworkError internal_assert(const std::string& condition, std::uint32_t line) {
  return {"RuntimeError", condition + " INTERNAL ASSERT FAILED at \"reducer.cpp\":" + std::to_string(line) + ", please report a bug to PyTorch. "};
}

FrameworkError unfinished_reduction(const DdpConfig& config, std::uint32_t rank, const std::vector<std::uint32_t>& unmarked) {
  if (unmarked.empty()) return internal_assert("!unmarked_param_indices.empty()", 2121);
  std::string indices;
  for (const std::uint32_t i : unmarked) indices += " " + std::to_string(i);
  return {"RuntimeError", reason(config) + "\nParameter indices which did not receive grad for rank " + std::to_string(rank) + ":" + indices + how_to_see_more};
}

FrameworkError unfinalized_backward() {
  return {"RuntimeError",
          "Expected to have finalized the prior backward pass before starting a new one. Call finalize_backward() after backward() when "
          "require_manual_backward_finalization is true."};
}

FrameworkError required_too_late() {
  return {"RuntimeError",
          "set_manual_finalization_required cannot be called after forward while a backward pass is expected or in progress. Call it before forward or after "
          "backward finalization."};
}

FrameworkError finalization_not_required() {
  return {"RuntimeError", "finalize_backward() called but manual backward finalization is not required. Set require_manual_backward_finalization to true first."};
}

FrameworkError nothing_to_finalize() {
  return {"RuntimeError",
          "finalize_backward() called but no gradient reduction requires finalization. This can happen if no_sync() is active or finalize_backward() was already "
          "called for this backward pass."};
}

FrameworkError buckets_not_ready(std::size_t next, std::size_t buckets) {
  return {"RuntimeError", "finalize_backward() called before all DDP buckets were ready. next_bucket_=" + std::to_string(next) + " buckets_.size()=" + std::to_string(buckets) +
                              ". Call finalize_backward() only after all DDP-managed parameters have computed gradients."};
}

FrameworkError graph_has_changed() {
  return {"RuntimeError",
          "Your training graph has changed in this iteration, e.g., one parameter is unused in first iteration, but then got used in the second "
          "iteration. this is not compatible with static_graph set to True."};
}

FrameworkError not_a_bucket_view() {
  return {"RuntimeError",
          "Detected at least one parameter gradient is not the expected DDP bucket view with gradient_as_bucket_view=True. This may happen (for "
          "example) if multiple allreduce hooks were registered onto the same parameter. If you hit this error, please file an issue with a minimal "
          "repro."};
}

FrameworkError marked_twice(std::uint32_t parameter) {
  return {"RuntimeError", "Expected to mark a variable ready only once. Parameter at index " + std::to_string(parameter) + " has been marked as ready twice."};
}

FrameworkError undefined_and_used() {
  return {"RuntimeError",
          "Encountered gradient which is undefined, but still allreduced by DDP reducer. This indicates a bug in DDP implementation, please report a bug with a repro to PyTorch."};
}

FrameworkError gradient_of_another_dtype(Dtype expected, Dtype found) { return {"RuntimeError", std::string("Expected ") + scalar_type(expected) + ", got " + scalar_type(found)}; }

}  // namespace gradledger::torch
