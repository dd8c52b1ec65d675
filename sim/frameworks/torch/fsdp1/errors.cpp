#include "sim/frameworks/torch/fsdp1/errors.h"

#include <string>

#include "sim/frameworks/torch/scalar_types.h"

namespace gradledger::torch::flat_sharded {
namespace {

std::string size(std::uint64_t numel) { return "torch.Size([" + std::to_string(numel) + "])"; }

}  // namespace

FrameworkError not_idle() { return {"ValueError", "expected to be in states [<TrainingState.IDLE: 1>] but current state is TrainingState.FORWARD_BACKWARD"}; }

FrameworkError not_in_a_pass() { return {"ValueError", "expected to be in states [<TrainingState.FORWARD_BACKWARD: 2>] but current state is TrainingState.IDLE"}; }

FrameworkError cannot_be_added(std::uint64_t target, std::uint64_t source) {
  if (target == 1) return {"RuntimeError", "output with shape [1] doesn't match the broadcast shape [" + std::to_string(source) + "]"};
  return {"RuntimeError", "The size of tensor a (" + std::to_string(target) + ") must match the size of tensor b (" + std::to_string(source) + ") at non-singleton dimension 0"};
}

FrameworkError cannot_be_assigned(std::uint64_t gradient, std::uint64_t parameter) {
  return {"RuntimeError", "attempting to assign a gradient of size '[" + std::to_string(gradient) + "]' to a tensor of size '[" + std::to_string(parameter) +
                              "]'. Please ensure that the gradient and the tensor are the same size"};
}

FrameworkError cannot_be_assigned(Dtype gradient, Dtype parameter) {
  return {"RuntimeError", std::string("attempting to assign a gradient with dtype 'c10::") + scalar_type(gradient) + "' to a tensor with grad_dtype '" + scalar_type(parameter) +
                              "'. The gradient must match the tensor's grad_dtype (defaults to the tensor's dtype)."};
}

FrameworkError gradient_shape_changes(std::uint64_t expected, std::uint64_t found) {
  return {"RuntimeError", "Cannot writeback when the gradient shape changes\nExpects " + size(expected) + " but got " + size(found)};
}

FrameworkError not_sharded(std::uint64_t expected, std::uint64_t found) {
  return {"AssertionError", "Expects tensor to be sharded with size " + size(expected) + " but got " + size(found)};
}

FrameworkError not_unsharded(std::uint64_t expected, std::uint64_t found) {
  return {"AssertionError", "Expects tensor to be unsharded with size " + size(expected) + " but got " + size(found)};
}

FrameworkError no_saved_grad_shard() { return {"AssertionError", "All sharded parameters that received a gradient in the post-backward should use `_saved_grad_shard`"}; }

FrameworkError not_on_compute_device() { return {"AssertionError", "Expects tensor to be on the compute device cuda:0, was on cpu"}; }

FrameworkError no_gradient() { return {"AssertionError", "Unexpected None grad!"}; }

FrameworkError changed_in_place() {
  return {"RuntimeError",
          "Output 0 of View is a view and its base or another view of its base has been modified inplace. This view is the output of a function that returns multiple views. Such "
          "functions do not allow the output views to be modified inplace. You should replace the inplace operation by an out-of-place one."};
}

FrameworkError cut_weight(std::uint64_t shard, std::uint64_t whole) {
  return {"RuntimeError", "shape '[" + std::to_string(shard) + "]' is invalid for input of size " + std::to_string(whole)};
}

FrameworkError given_up_weight() { return {"SegmentationFault", "a module computes with weights whose memory it has given up"}; }

}  // namespace gradledger::torch::flat_sharded
