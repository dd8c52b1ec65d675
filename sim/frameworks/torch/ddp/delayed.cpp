// delay_all_reduce_named_params: parameters outside of the reducer, whose gradients are views of one fp32 buffer. It is averaged when the
// gradient of another parameter is ready, in every backward.
#include <algorithm>
#include <string>

#include "sim/frameworks/torch/ddp/distributed_data_parallel.h"

namespace gradledger::torch {

void DistributedDataParallel::initialise_delayed(const Pass& pass) {
  if (delayed_.empty()) return;
  std::uint64_t numel = 0;
  for (const std::uint32_t p : delayed_) numel += parameter(p).numel;
  // One count of the buffer stays with the engine: gradients come and go.
  delay_buffer_ = gradients_.tensors.allocate(pass.w, "delay_grad_buffer", Dtype::float32, numel).slice;
  pass.w.fill(delay_buffer_, 0.0);
  delay_views_.resize(parameter_count());
  std::uint64_t offset = 0;
  for (const std::uint32_t p : delayed_) {
    delay_views_[p] = delay_buffer_.part(offset, parameter(p).numel);
    offset += parameter(p).numel;
  }
}

// At the end of each forward: gradients that are None become views again, which begin with zeros. PyTorch refuses them where weights have 16 bits.
void DistributedDataParallel::clear_grad_buffer(const Pass& pass) {
  if (delayed_.empty()) return;
  const bool all_none = std::none_of(delayed_.begin(), delayed_.end(), [&](std::uint32_t p) { return gradients_.grad[p].defined(); });
  for (const std::uint32_t p : delayed_) {
    if (gradients_.grad[p].defined()) continue;
    if (const Dtype dtype = scenario().dtype_of(p); dtype != Dtype::float32)
      throw FrameworkError{"RuntimeError", std::string("attempting to assign a gradient with dtype 'float' to a tensor with grad_dtype '") +
                                               (dtype == Dtype::bfloat16 ? "BFloat16" : "Half") + "'."};
    gradients_.tensors.share(pass.w, gradients_.grad[p], {delay_views_[p]});
    if (!all_none) pass.w.fill(delay_views_[p], 0.0);
  }
  if (all_none) pass.w.fill(delay_buffer_, 0.0);
}

// Nobody waits for it before the step: the handle is dropped.
void DistributedDataParallel::reduce_delayed(const Pass& pass) {
  pass.w.divide(delay_buffer_, world());
  const std::uint32_t divided = pass.w.record();
  OnStream communication(pass.w, Stream::communication);
  pass.w.wait(divided);
  pass.w.collective({.group = gradients_.group, .input = delay_buffer_, .output = delay_buffer_});
}

}  // namespace gradledger::torch
