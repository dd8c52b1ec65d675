// What happens to a full bucket: the plain reduction, or the hook that was registered in its place. A hook sees undivided gradients.
#include "sim/frameworks/torch/ddp/reducer.h"

namespace gradledger::torch {
namespace {

void all_reduce(const Pass& pass, Slice slice) { pass.w.collective({.input = slice, .output = slice}); }

std::optional<Dtype> compressed_dtype(CommHook hook) {
  switch (hook) {
    case CommHook::fp16_compress:
    case CommHook::fp16_wrapper: return Dtype::float16;
    case CommHook::bf16_compress:
    case CommHook::bf16_wrapper: return Dtype::bfloat16;
    case CommHook::none:
    case CommHook::allreduce:
    case CommHook::noop: return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace

void Reducer::all_reduce_bucket(const Pass& pass, Bucket& bucket) {
  if (batched()) copy_batch(pass, bucket);
  const Slice whole = bucket.gradients.slice;
  Slice sent = whole;
  const std::optional<Dtype> wire = compressed_dtype(config_->comm_hook);
  if (wire && pass.w.declaration(whole.buffer).dtype != *wire) {
    bucket.compressed = pass.g.tensors.allocate(pass.w, pass.w.declaration(whole.buffer).name + ".compressed", *wire, whole.numel);
    sent = bucket.compressed.slice;
    pass.w.copy(sent, whole);
  }
  if (config_->comm_hook == CommHook::noop) return;
  if (config_->comm_hook != CommHook::none) pass.w.divide(sent, world());
  const std::uint32_t filled = pass.w.record();
  {
    OnStream communication(pass.w, Stream::communication);
    pass.w.wait(filled);
    all_reduce(pass, sent);
    if (sent.buffer != whole.buffer) pass.w.copy(whole, sent);
    bucket.work = pass.w.record();
  }
  if (!config_->optimizer_in_backward) return;
  pass.w.wait(bucket.work);
  bucket.work = no_index;
  pass.w.divide(whole, world());
  for (const std::uint32_t v : bucket.variables) pass.step(parameters_[v], view(v));
  optimizer_ran_ = true;
}

}  // namespace gradledger::torch
