// What happens to a full bucket: the plain reduction, or the hook that was registered in its place. A hook sees undivided gradients.
#include <string>
#include <vector>

#include "sim/frameworks/torch/ddp/power_sgd.h"
#include "sim/frameworks/torch/ddp/reducer.h"

namespace gradledger::torch {
namespace {

void all_reduce(const Pass& pass, Slice slice) { pass.w.collective({.group = pass.g.group, .input = slice, .output = slice}); }

// One after the other into a whole, and back.
void gather(const Pass& pass, Slice whole, const std::vector<Slice>& parts) {
  std::uint64_t at = 0;
  for (const Slice& part : parts) {
    pass.w.copy(whole.part(at, part.numel), part);
    at += part.numel;
  }
}

void scatter(const Pass& pass, const std::vector<Slice>& parts, Slice whole) {
  std::uint64_t at = 0;
  for (const Slice& part : parts) {
    pass.w.copy(part, whole.part(at, part.numel));
    at += part.numel;
  }
}

std::optional<Dtype> compressed_dtype(CommHook hook) {
  switch (hook) {
    case CommHook::fp16_compress:
    case CommHook::fp16_wrapper: return Dtype::float16;
    case CommHook::bf16_compress:
    case CommHook::bf16_wrapper: return Dtype::bfloat16;
    case CommHook::none:
    case CommHook::allreduce:
    case CommHook::noop:
    case CommHook::sum:
    case CommHook::power_sgd: return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace

void Reducer::all_reduce_bucket(const Pass& pass, Bucket& bucket) {
  bucket.has_future = true;
  const Slice whole = bucket.gradients.slice;
  Slice sent = whole;
  const std::optional<Dtype> wire = compressed_dtype(config_->comm_hook);
  if (wire && pass.w.declaration(whole.buffer).dtype != *wire) {
    bucket.compressed = pass.g.tensors.allocate(pass.w, pass.w.declaration(whole.buffer).name + ".compressed", *wire, whole.numel);
    sent = bucket.compressed.slice;
    pass.w.copy(sent, whole);
  }
  if (config_->comm_hook == CommHook::noop) return;
  if (config_->comm_hook == CommHook::power_sgd && !averages_as_is(bucket)) return compress_bucket(pass, bucket);
  if (config_->comm_hook != CommHook::none && config_->comm_hook != CommHook::sum) pass.w.divide(sent, world());
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
  for (const std::uint32_t v : bucket.variables) {
    // The hook gives a parameter its part of the bucket, but not where gradients are views: one that has none here is not stepped.
    if (config_->gradient_as_bucket_view && !pass.g.grad[parameters_[v]].defined()) continue;
    pass.step(parameters_[v], view(v));
  }
  optimizer_ran_ = true;
}

// The wrappers put the bucket that they cast in the place of the bucket, and hand that on: a parameter without a gradient gets its part of it as it is.
Dtype Reducer::dtype_of_future(std::uint32_t variable) const {
  const bool wraps = config_->comm_hook == CommHook::fp16_wrapper || config_->comm_hook == CommHook::bf16_wrapper;
  return wraps ? *compressed_dtype(config_->comm_hook) : context_.scenario->dtype_of(parameters_[variable]);
}

// The iterations before start_powerSGD_iter: counted by their last bucket.
bool Reducer::averages_as_is(const Bucket& bucket) {
  if (iterations_ >= config_->power_sgd->start_powerSGD_iter) return false;
  if (&bucket == &buckets_.back()) ++iterations_;
  return true;
}

// Of a matrix two factors travel. Which ones PyTorch finds is not computed: their product stands as the average that it approximates, so that what takes
// part is right and values are not PyTorch's. What is small goes uncompressed, in one piece.
void Reducer::compress_bucket(const Pass& pass, Bucket& bucket) {
  const auto index = static_cast<std::uint32_t>(&bucket - buckets_.data());
  const std::string of_bucket = "[" + std::to_string(index) + "]";
  const Slice whole = bucket.gradients.slice;
  const Dtype dtype = pass.w.declaration(whole.buffer).dtype;
  const auto tensor = [&](const std::string& name, std::uint64_t numel, std::uint64_t declared) {
    return pass.g.tensors.allocate(pass.w, name + of_bucket, dtype, numel, MemorySpace::device, declared);
  };
  Tensor before;  // the compression, with what error feedback added
  if (config_->power_sgd->use_error_feedback) {
    Tensor& error = errors_[index];
    if (error.defined()) pass.w.accumulate(whole, error.slice);
    else pass.w.fill((error = tensor("error_dict", whole.numel, whole.numel)).slice, 0.0);
    before = tensor("input_tensor_cp", whole.numel, whole.numel);
    pass.w.copy(before.slice, whole);
  }
  std::vector<Slice> matrices, rest;
  std::uint64_t matrices_numel = 0, rest_numel = 0, p_numel = 0, q_numel = 0;
  for (const std::uint32_t v : bucket.variables) {
    const auto low_rank = low_rank_of(*config_, context_.scenario->parameters[parameters_[v]]);
    (low_rank ? matrices : rest).push_back(view(v));
    (low_rank ? matrices_numel : rest_numel) += view(v).numel;
    p_numel += low_rank ? low_rank->p_numel : 0;
    q_numel += low_rank ? low_rank->q_numel : 0;
  }
  const Tensor uncompressed = tensor("uncompressed_tensors_memory", rest_numel, rest_numel), p = tensor("p_memory_dict", matrices_numel, p_numel),
               q = tensor("q_memory_dict", q_numel, q_numel);
  gather(pass, uncompressed.slice, rest);
  gather(pass, p.slice, matrices);
  pass.w.fill(q.slice, 0.0);
  const std::uint32_t filled = pass.w.record();
  OnStream communication(pass.w, Stream::communication);
  pass.w.wait(filled);
  all_reduce(pass, uncompressed.slice);
  pass.w.collective({.group = pass.g.group, .compressed_numel = p_numel, .input = p.slice, .output = p.slice});
  all_reduce(pass, q.slice);
  for (const Tensor& sum : {uncompressed, p}) pass.w.divide(sum.slice, world());
  scatter(pass, rest, uncompressed.slice);
  scatter(pass, matrices, p.slice);
  for (const Tensor& done : {uncompressed, p, q}) pass.g.tensors.drop(pass.w, done);
  if (before.defined()) {
    const Slice error = errors_[index].slice;
    pass.w.copy(error, whole);
    pass.w.multiply(error, -1.0);
    pass.w.accumulate(error, before.slice);
    pass.g.tensors.drop(pass.w, before);
  }
  bucket.work = pass.w.record();
  if (&bucket == &buckets_.back()) ++iterations_;
}

}  // namespace gradledger::torch
