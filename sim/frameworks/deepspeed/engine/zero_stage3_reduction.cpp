// ZeRO stage 3: how a bucket is reduced and cut into partitions, and where these are stored.
#include "sim/frameworks/deepspeed/engine/zero_stage3.h"

#include <algorithm>

namespace gradledger {

// ---- one bucket: reduce, cut into partitions, store --------------------------------------------------------------------------------

void ZeroStage3::reduce_bucket(ProgramWriter& w) {
  if (bucket_.empty()) return;
  require_reducible();
  limit_reductions_in_flight(w);
  OnStream reduction(w, reduction_stream());
  const bool all_reduces = contiguous_ && bucket_elements_ <= config().zero.reduce_bucket_size && !config().zero.reduce_scatter;
  if (!all_reduces) std::sort(bucket_.begin(), bucket_.end());
  partition_gradients(w, all_reduces ? all_reduce_partitions(w) : reduce_scatter_partitions(w));
  clear_bucket();
  in_flight_.push_back(w.record());
}

// Backwards without an epilogue leave parameters in the bucket, where a zero_grad or another backward finds them.
void ZeroStage3::require_reducible() const {
  for (const std::uint32_t p : bucket_)
    if (!grad_[p].defined()) throw FrameworkError{"AttributeError", "'NoneType' object has no attribute 'numel'"};
  if (behaviour().tied_hook != TiedHook::once) return;
  std::vector<std::uint32_t> sorted = bucket_;
  std::sort(sorted.begin(), sorted.end());
  if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end()) throw FrameworkError{"AssertionError", "a parameter is in the bucket twice"};
}

// DeepSpeed#7418: before it the elements that were reduced went on counting, and a full bucket held one parameter at a time. Where the whole
// bucket is all-reduced, the parameters were cut from its beginning, where those of the first backward still lay.
void ZeroStage3::clear_bucket() {
  bucket_.clear();
  if (behaviour().stage3_bucket_start == Stage3BucketStart::beginning) bucket_elements_ = 0;
}

// The host goes on when all but two are over.
void ZeroStage3::limit_reductions_in_flight(ProgramWriter& w) {
  if (in_flight_.size() <= 2) return;
  OnStream host(w, Stream::host);
  w.wait(in_flight_.front());
  in_flight_.pop_front();
}

// reduce_scatter: false. live-6: with gradient_predivide_factor == world it divides twice and never multiplies back.
std::vector<Tensor> ZeroStage3::all_reduce_partitions(ProgramWriter& w) {
  const Slice bucket = bucket_buffer_.slice.part(0, bucket_elements_);
  const double factor = config().gradient_predivide_factor;
  const bool postscale = !config().prescale_gradients;
  if (postscale && factor != 1.0) w.divide(bucket, factor);
  w.divide(bucket, average_over());
  w.collective({.kind = CollectiveKind::all_reduce, .group = peers().id, .communicator = reduces_in(), .input = bucket, .output = bucket});
  // The product is another tensor: what stays in the bucket is not multiplied.
  Tensor product;
  Slice reduced = bucket;
  if (postscale && factor != peers().size() && factor != 1.0) {
    product = tensors_.allocate(w, "multiplied_bucket", comm_dtype_, bucket.numel);
    reduced = product.slice;
    w.copy(reduced, bucket);
    w.multiply(reduced, factor);
  }
  std::vector<Tensor> partitions;
  std::uint64_t at = 0;
  for (std::uint32_t p : bucket_) {
    const ParameterShard own = shard(p);
    Tensor partition = tensors_.allocate(w, "grad_partition of " + parameter_name(p), acc_dtype_, own.size);
    if (own.real < own.size) w.fill(partition.slice, 0.0);
    if (own.real > 0) copy_reduced(w, p, partition.slice.part(0, own.real), reduced.part(at + own.offset, own.real));
    if (own.real > 0) take_into_momentum_of(w, p, partition.slice.part(0, own.real), scaler_.scale());
    partitions.push_back(partition);
    at += numel(p);
  }
  tensors_.drop(w, product);
  return partitions;
}

// The default: each parameter cut into world chunks, interleaved by rank with padding that nobody reads, divided, one reduce_scatter.
std::vector<Tensor> ZeroStage3::reduce_scatter_partitions(ProgramWriter& w) {
  std::uint64_t chunk = 0;
  for (std::uint32_t p : bucket_) chunk += shard(p).size;
  Tensor interleaved;
  const Slice lone = gradient_slice_[bucket_.front()];
  const bool in_bucket = contiguous_ && lone.buffer == bucket_buffer_.slice.buffer;
  if (bucket_.size() == 1 && lone.numel == chunk * peers().size() && w.declaration(lone.buffer).dtype == comm_dtype_) {
    // A lone parameter without padding is its own interleaving. The caller holds its memory.
    if (in_bucket) interleaved.slice = lone;
    else tensors_.share(w, interleaved, grad_[bucket_.front()]);
  } else {
    interleaved = tensors_.allocate(w, "interleaved_partitions", comm_dtype_, chunk * peers().size());
    interleave(w, interleaved.slice);
  }
  const double factor = config().gradient_predivide_factor;
  const bool predivides = !config().prescale_gradients && factor != 1.0;
  if (predivides) w.divide(interleaved.slice, factor);
  w.divide(interleaved.slice, peers().size());
  const Slice own = interleaved.slice.part(index_in_peers() * chunk, chunk);
  w.collective({.kind = CollectiveKind::reduce_scatter, .group = peers().id, .communicator = reduces_in(), .input = interleaved.slice, .output = own});
  const bool multiplies = predivides || (!config().prescale_gradients && behaviour().stage3_predivide_multiplies == Stage3Predivide::always);
  if (multiplies && factor != peers().size()) w.multiply(own, factor);
  const bool counted = !contiguous_ || interleaved.slice.buffer != bucket_buffer_.slice.buffer;  // the bucket buffer lives as long as the engine
  std::vector<Tensor> partitions;
  std::uint64_t at = 0;
  for (std::uint32_t p : bucket_) {
    Tensor partition;
    const Slice reduced = own.part(at, shard(p).real);
    if (comm_dtype_ == acc_dtype_ && counted && !rounds_to_model()) {
      tensors_.share(w, partition, {reduced});
    } else {
      partition = make_partition(w, p);
      copy_reduced(w, p, partition.slice, reduced);
    }
    partitions.push_back(partition);
    at += shard(p).size;
  }
  if (counted) tensors_.drop(w, interleaved);
  return partitions;
}

Tensor ZeroStage3::make_partition(ProgramWriter& w, std::uint32_t p) {
  return tensors_.allocate_again(w, reduced_storage_[p], acc_dtype_, shard(p).real, [&] { return "grad_partition of " + parameter_name(p); });
}

// DeepSpeed#8056: until then what was communicated in another dtype went through the model dtype on its way to the accumulator.
bool ZeroStage3::rounds_to_model() const { return comm_dtype_ != model_dtype_ && behaviour().stage3_reduced_dtype == Stage3ReducedDtype::model; }

void ZeroStage3::copy_reduced(ProgramWriter& w, std::uint32_t p, Slice target, Slice reduced) {
  if (!rounds_to_model() || acc_dtype_ == model_dtype_) return w.copy(target, reduced);
  const Tensor rounded = tensors_.allocate(w, "grad_partition of " + parameter_name(p), model_dtype_, reduced.numel);
  w.copy(rounded.slice, reduced);
  w.copy(target, rounded.slice);
  tensors_.drop(w, rounded);
}

void ZeroStage3::interleave(ProgramWriter& w, Slice interleaved) {
  Interleaving by_owner{{}, peers().size()};
  for (std::uint32_t p : bucket_) by_owner.parts.push_back({gradient_slice_[p].part(0, numel(p)), shard(p).size});
  w.interleave(interleaved, std::move(by_owner));
}

void ZeroStage3::partition_gradients(ProgramWriter& w, std::vector<Tensor> partitions) {
  for (std::size_t i = 0; i < bucket_.size(); ++i) {
    const std::uint32_t p = bucket_[i];
    if (shard(p).real > 0) {
      const Slice target = partition_of(p).part(0, partitions[i].numel());
      store_partition(w, target, partitions[i].slice);
      stored_in_window_[p] = true;
      if (offload_ && boundary_mirror()) to_master_gradient(w, p);
    }
    tensors_.drop(w, partitions[i]);
    tensors_.clear(w, grad_[p]);
  }
}

void ZeroStage3::to_master_gradient(ProgramWriter& w, std::uint32_t p) {
  const Slice stored = partition_of(p).part(0, shard(p).real);
  const bool follows = pinned() && behaviour().stage3_master_copy == Stage3MasterCopy::follows_pin_memory;
  w.fill(recorded_norms_.part(p, 1), 0.0);
  w.squared_norm(recorded_norms_.part(p, 1), stored);
  norm_recorded_[p] = true;
  for (const SubGroup& group : groups_)
    if (contains(group.parameters, p)) w.copy_over_the_bus(in_group(group, group.master_gradient, p).part(0, stored.numel), stored, follows);
}

// micro_step_id 0 stores, every later one adds; host partitions are added to on the device.
void ZeroStage3::store_partition(ProgramWriter& w, Slice target, Slice partition) {
  if (micro_step_id_ == 0) return offload_ ? w.copy_over_the_bus(target, partition, pinned()) : w.copy(target, partition);
  if (!offload_) return w.accumulate(target, partition);
  Tensor on_device = tensors_.allocate(w, "grad_buffer on device", acc_dtype_, target.numel);
  w.copy_over_the_bus(on_device.slice, target, pinned());
  w.accumulate(on_device.slice, partition);
  w.copy_over_the_bus(target, on_device.slice, pinned());
  tensors_.drop(w, on_device);
}

}  // namespace gradledger
