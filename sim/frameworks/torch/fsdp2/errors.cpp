#include "sim/frameworks/torch/fsdp2/errors.h"

#include <string>

#include "sim/numeric/dtype_names.h"

namespace gradledger::torch::fully_shard {
namespace {

// PyTorch has a module's name in the model, and a script its number.
std::string quoted_name_of(std::uint32_t module) { return module == 0 ? "'<root>'" : "'units." + std::to_string(module - 1) + "'"; }

}  // namespace

// Python prints a set of them, whose order means nothing.
FrameworkError gradients_of_several_dtypes(const std::vector<Dtype>& dtypes) {
  std::string names;
  for (const Dtype dtype : dtypes) names += (names.empty() ? "torch." : ", torch.") + std::string(torch_name_of(dtype));
  return {"AssertionError", "FSDP reduce-scatter expects uniform gradient dtype but got {" + names + "}"};
}

FrameworkError cannot_be_added(std::uint64_t target, std::uint64_t source) {
  if (target == 1) return {"RuntimeError", "output with shape [1] doesn't match the broadcast shape [" + std::to_string(source) + "]"};
  return {"RuntimeError", "The size of tensor a (" + std::to_string(target) + ") must match the size of tensor b (" + std::to_string(source) + ") at non-singleton dimension 0"};
}

FrameworkError never_gathered() { return {"AttributeError", "'FSDPParam' object has no attribute '_unsharded_param'"}; }

FrameworkError used_while_sharded() {
  return {"RuntimeError", "got mixed torch.Tensor and DTensor, need to convert all torch.Tensor to DTensor before calling distributed operators!"};
}

FrameworkError gradients_of_two_meshes(bool first_over_both, std::uint32_t data_parallel, std::uint32_t tensor_parallel) {
  const std::string tensor = std::to_string(tensor_parallel), dp = "dp=" + std::to_string(data_parallel);
  const std::string both = "DeviceMesh((" + dp + ", tp=" + tensor + "), stride=(" + tensor + ", 1))", one = "DeviceMesh((" + dp + "), stride=(" + tensor + ",))";
  return {"RuntimeError", "All operands in aten.stack.default must have the same mesh, but got " + (first_over_both ? one + " and " + both : both + " and " + one) + "."};
}

FrameworkError empty_gradient() { return {"RuntimeError", "_chunk_cat expects non-empty tensor"}; }

FrameworkError not_used_yet() { return {"AttributeError", "'FSDPCommContext' object has no attribute 'all_gather_state'"}; }

FrameworkError not_on_the_root(const char* method) { return {"RuntimeError", std::string(method) + " must be called on the root FSDP module"}; }

FrameworkError not_waited_for(const char* what) { return {"RuntimeError", std::string("The previous gradient reduction must be waited on before ") + what}; }

FrameworkError mode_of_an_open_backward() { return {"RuntimeError", "set_manual_backward_finalization cannot change mode after backward starts"}; }

FrameworkError ends_by_itself() {
  return {"RuntimeError", "FSDP finalize_backward requires manual backward finalization. Call set_manual_backward_finalization(True) before forward"};
}

FrameworkError ended_too_early() { return {"RuntimeError", "FSDP finalize_backward must be called after backward completes"}; }

FrameworkError ended_with_a_partial_sum(std::uint32_t module) {
  return {"RuntimeError", "FSDP manual backward finalization does not support partial gradient reductions for parameter group " + quoted_name_of(module) +
                              ". Use automatic backward finalization for this configuration"};
}

FrameworkError ended_without_an_all_reduce(std::uint32_t module) {
  return {"RuntimeError",
          "FSDP manual backward finalization requires all-reduce for parameter group " + quoted_name_of(module) + ". Call set_requires_all_reduce(True) before finalization"};
}

FrameworkError invalidated_handle() { return {"RuntimeError", "This gradient reduction handle was invalidated"}; }

}  // namespace gradledger::torch::fully_shard
