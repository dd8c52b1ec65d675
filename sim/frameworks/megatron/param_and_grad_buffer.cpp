#include "sim/frameworks/megatron/param_and_grad_buffer.h"

#include <utility>

namespace gradledger::megatron {
namespace {

std::uint32_t record_on(Stream stream, ProgramWriter& w) {
  const OnStream on(w, stream);
  return w.record();
}

}  // namespace

BucketGroup::BucketGroup(SharedSetup setup, const ParamAndGradBuffer& buffer, std::uint32_t bucket, std::string name)
    : setup_(std::move(setup)), name_(std::move(name)), group_(buffer.group), gradient_scaling_factor_(buffer.gradient_scaling_factor) {
  const BucketRange range = buffer.layout.buckets[bucket];
  for (const ParameterPlace& p : buffer.layout.parameters)
    if (p.bucket == bucket) parameters_.push_back(p.parameter);
  grads_ = buffer.grad_data.part(range.begin, range.end - range.begin);
  if (distributed()) params_ = buffer.param_data.part(range.begin, range.end - range.begin);
}

// A window ends. The first one that was not empty says how often each parameter is ready in a window.
void BucketGroup::reset() {
  if (counts() && is_first_batch_ && !ready_.empty()) {
    if (ready_.size() != parameters_.size()) throw FrameworkError{"AssertionError", ""};
    golden_ = ready_;
    is_first_batch_ = false;
  }
  ready_.clear();
  is_last_microbatch_ = true;
  grad_reduce_finished_ = false;
  if (!setup_->behaviour.bucket_groups) handle_.reset();
}

// ---- gradients ----------------------------------------------------------------------------------------------------------------------

void BucketGroup::register_grad_ready(std::uint32_t parameter, ProgramWriter& w) {
  if (!is_last_microbatch_) return;
  if (counts()) {
    ++ready_[parameter];
    if (!is_first_batch_ && ready_ == golden_) start_grad_sync(w);
    return;
  }
  if (!ready_.emplace(parameter, 1).second) throw FrameworkError{"AssertionError", "Cannot set grad twice"};
  if (ready_.size() == parameters_.size()) start_grad_sync(w);
}

// The rank's equal part of a bucket, in the group that the bucket is dealt to.
Slice BucketGroup::shard_of_rank(Slice whole) const {
  const std::uint64_t part = whole.numel / group_.size();
  return whole.part(group_.index_of(setup_->context.rank) * part, part);
}

void BucketGroup::start_grad_sync(ProgramWriter& w) {
  if (counts() && is_first_batch_ && handle_) return;
  if (handle_) throw FrameworkError{"AssertionError", "Should not have multiple communication calls outstanding at once"};
  if (gradient_scaling_factor_ != 1.0 && grads_.numel > 0) w.multiply(grads_, gradient_scaling_factor_);
  const bool several = setup_->instances() > 1;
  const bool asynchronous = overlaps() && !several;
  GradReduce handle;
  Slice data = grads_;
  if (asynchronous && setup_->machine == Machine::recorded_cpu) {
    const BufferId staging = w.declare("results of " + name_, w.declaration(grads_.buffer).dtype, grads_.numel);
    w.allocate(staging);
    handle.staged = data = w.whole(staging);
    w.copy(data, grads_);
  }
  // A collective waits for the stream that issues it. Several instances have a stream for theirs, which waits for the default one.
  const std::uint32_t ready = record_on(several ? Stream::compute : w.stream(), w);
  {
    const OnStream on_communication(w, Stream::communication);
    w.wait(ready);
    reduce(data, w);
    handle.done = w.record();
  }
  if (asynchronous) handle_ = handle;
  else if (overlaps()) communicated_ = handle.done;
  else w.wait(handle.done);
  waited_ = false;
}

// Reduced in place: with the distributed optimizer the rank's part alone, and then across the instances.
void BucketGroup::reduce(Slice data, ProgramWriter& w) {
  const ReduceOp op = setup_->config->ddp.average_in_collective ? ReduceOp::avg : ReduceOp::sum;
  const auto call = [&](CollectiveKind kind, const ProcessGroup& group, Slice input, Slice output) {
    meet_in(group, {.kind = kind, .op = op, .purpose = Purpose::gradient, .input = input, .output = output}, w);
  };
  if (!distributed()) return call(CollectiveKind::all_reduce, group_, data, data);
  const Slice own = shard_of_rank(data);
  call(CollectiveKind::reduce_scatter, group_, data, own);
  if (setup_->instances() > 1) call(CollectiveKind::all_reduce, setup_->groups.between_instances, own, own);
}

void BucketGroup::wait(const GradReduce& handle, ProgramWriter& w) {
  w.wait(handle.done);
  if (handle.staged.buffer == no_index) return;
  const Slice from = distributed() ? shard_of_rank(handle.staged) : handle.staged;
  w.copy(distributed() ? shard_of_rank(grads_) : grads_, from);
  w.release(handle.staged.buffer);
}

void BucketGroup::finish_grad_sync(ProgramWriter& w) {
  param_gather_dispatched_ = false;
  if (!overlaps()) return start_grad_sync(w);
  if (setup_->behaviour.remembers_finish && grad_reduce_finished_) return;
  if (counts() && is_first_batch_) start_grad_sync(w);
  if (setup_->instances() > 1) {
    if (communicated_ != no_index) w.wait(std::exchange(communicated_, no_index));
    grad_reduce_finished_ = true;
    return;
  }
  if (!handle_)
    throw FrameworkError{"AssertionError", "Communication call has not been issued for this bucket (" + std::to_string(ready_.size()) + "/" + std::to_string(parameters_.size()) +
                                               " params have grad available)"};
  if (!std::exchange(waited_, true)) wait(*handle_, w);
  if (setup_->behaviour.bucket_groups) handle_.reset();
  grad_reduce_finished_ = true;
}

// ---- weights ------------------------------------------------------------------------------------------------------------------------

void BucketGroup::start_param_sync(bool force, ProgramWriter& w) {
  if (!distributed()) throw FrameworkError{"AssertionError", ""};  // nothing to gather
  if (force && gather_done_) {
    w.wait(*std::exchange(gather_done_, std::nullopt));
    return;
  }
  // A module that ran dispatched the gather for one that did not, which then never waited for it.
  if (gather_done_) throw FrameworkError{"AssertionError", ""};
  const std::uint32_t ready = w.record();
  std::uint32_t done = no_index;
  {
    const OnStream on_communication(w, Stream::communication);
    w.wait(ready);
    meet_in(group_, {.kind = CollectiveKind::all_gather, .purpose = Purpose::parameter, .input = shard_of_rank(params_), .output = params_}, w);
    done = w.record();
  }
  if (setup_->config->ddp.overlap_param_gather && !force) gather_done_ = done;
  else w.wait(done);
  param_gather_dispatched_ = true;
}

bool BucketGroup::finish_param_sync(ProgramWriter& w) {
  if (!param_gather_dispatched_) start_param_sync(false, w);
  if (!gather_done_) return false;
  w.wait(*std::exchange(gather_done_, std::nullopt));
  return true;
}

}  // namespace gradledger::megatron
