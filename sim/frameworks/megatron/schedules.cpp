#include "sim/frameworks/megatron/schedules.h"

#include <algorithm>

namespace gradledger::megatron {
namespace {

const ScheduleOptions& schedule_of(const Setup& setup) { return *setup.config->schedule; }

}  // namespace

// Groups of micro-batches go through all chunks, the model's last one first; the last group may be smaller.
ScheduledBackward scheduled_backward(const ScheduleOptions& schedule, std::uint32_t stages, std::uint32_t number) {
  const std::uint32_t chunks = schedule.chunks(), in_group = schedule.group_size(stages);
  const std::uint32_t first = number / (in_group * chunks) * in_group;
  const std::uint32_t size = std::min(in_group, schedule.num_microbatches - first), within = number - first * chunks;
  return {chunks - 1 - within / size, first + within % size};
}

ScheduledBackward ScheduleCall::next(const Setup& setup) const { return scheduled_backward(schedule_of(setup), setup.stages(), number_); }

void ScheduleCall::begin(DistributedDataParallel& ddp) {
  runs_ = true;
  disabled_ = false;
  number_ = 0;
  synchronized_.clear();
  disable(ddp);
}

void ScheduleCall::disable(DistributedDataParallel& ddp) {
  if (disabled_) return;
  ddp.enter_no_sync();
  disabled_ = true;
}

void ScheduleCall::enable(DistributedDataParallel& ddp) {
  if (!disabled_) return;
  ddp.leave_no_sync();
  disabled_ = false;
}

// The last backward of each chunk synchronises, unless a function was given that a stage calls for it behind its backwards. Without chunks the first
// stage synchronises by itself all the same.
void ScheduleCall::before_backward(const Setup& setup, DistributedDataParallel& ddp) {
  const ScheduleOptions& schedule = schedule_of(setup);
  const bool last_of_chunk = next(setup).micro_batch + 1 == schedule.num_microbatches;
  const bool by_itself = !schedule.grad_sync_func || setup.stages() == 1 || (!schedule.interleaved() && setup.groups.first_stage());
  if (!last_of_chunk || !by_itself) return;
  enable(ddp);
  synchronized_.insert(next(setup).chunk);
}

void ScheduleCall::after_backward(const Setup& setup, DistributedDataParallel& ddp, ProgramWriter& w) {
  if (schedule_of(setup).interleaved()) {
    if (schedule_of(setup).grad_sync_func) sync_of_chunk(setup, ddp, w);
    disable(ddp);
  }
  if (++number_ == schedule_of(setup).backwards()) end(setup, ddp, w);
}

// Stages begin a chunk's reduction together: each as many backwards behind its own last one of the chunk as it is stages behind the first.
void ScheduleCall::sync_of_chunk(const Setup& setup, DistributedDataParallel& ddp, ProgramWriter& w) {
  if (number_ < setup.groups.stage) return;
  const ScheduledBackward ended = scheduled_backward(schedule_of(setup), setup.stages(), number_ - setup.groups.stage);
  if (ended.micro_batch + 1 != schedule_of(setup).num_microbatches) return;
  enable(ddp);
  ddp.start_grad_sync(ended.chunk, w);
  synchronized_.insert(ended.chunk);
}

void ScheduleCall::end(const Setup& setup, DistributedDataParallel& ddp, ProgramWriter& w) {
  runs_ = false;
  const bool was_disabled = disabled_;
  enable(ddp);
  if (!was_disabled || !schedule_of(setup).grad_sync_func) return;
  for (std::uint32_t chunk = 0; chunk < schedule_of(setup).chunks(); ++chunk)
    if (!synchronized_.contains(chunk)) ddp.start_grad_sync(chunk, w);
}

}  // namespace gradledger::megatron
