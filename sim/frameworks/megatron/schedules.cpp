#include "sim/frameworks/megatron/schedules.h"

#include <algorithm>

namespace gradledger::megatron {
namespace {

const ScheduleOptions& schedule_of(const Setup& setup) { return *setup.config->schedule; }

// Forwards of a stage before its first backward, less the one that follows at once. schedules.py: get_pp_rank_microbatches, at 0.16.1
std::uint32_t warm_up(const Setup& setup) {
  const std::uint32_t later = setup.stages() - 1 - setup.groups.stage;
  const ScheduleOptions& schedule = schedule_of(setup);
  return schedule.interleaved() ? 2 * later + (schedule.chunks() - 1) * schedule.group_size(setup.stages()) : later;
}

}  // namespace

// Groups of micro-batches go through all chunks; the last group may be smaller.
ScheduledPass scheduled_forward(const ScheduleOptions& schedule, std::uint32_t stages, std::uint32_t number) {
  const std::uint32_t chunks = schedule.chunks(), in_group = schedule.group_size(stages);
  const std::uint32_t first = number / (in_group * chunks) * in_group;
  const std::uint32_t size = std::min(in_group, schedule.num_microbatches - first), within = number - first * chunks;
  return {within / size, first + within % size};
}

// Likewise, the model's last chunk first.
ScheduledPass scheduled_backward(const ScheduleOptions& schedule, std::uint32_t stages, std::uint32_t number) {
  ScheduledPass out = scheduled_forward(schedule, stages, number);
  out.chunk = schedule.chunks() - 1 - out.chunk;
  return out;
}

ScheduledPass ScheduleCall::next(const Setup& setup) const { return scheduled_backward(schedule_of(setup), setup.stages(), number_); }

void ScheduleCall::begin(const Setup& setup, DistributedDataParallel& ddp, ProgramWriter& w) {
  runs_ = true;
  disabled_ = false;
  number_ = forwards_ = 0;
  synchronized_.clear();
  disable(ddp);
  const std::uint32_t before_backwards = std::min(warm_up(setup) + 1, schedule_of(setup).backwards());
  while (forwards_ < before_backwards) run_forward(setup, w);
  wait_for_gradients(setup, w);
}

void ScheduleCall::run_forward(const Setup& setup, ProgramWriter& w) {
  const ScheduledPass pass = scheduled_forward(schedule_of(setup), setup.stages(), forwards_++);
  setup.neighbours.receive_activations(pass.chunk, w);
  setup.neighbours.send_activations(pass.chunk, schedule_of(setup).chunks(), w);
}

void ScheduleCall::wait_for_gradients(const Setup& setup, ProgramWriter& w) const {
  if (number_ < schedule_of(setup).backwards()) setup.neighbours.receive_gradients(next(setup).chunk, schedule_of(setup).chunks(), w);
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
  setup.neighbours.send_gradients(next(setup).chunk, w);
  if (schedule_of(setup).interleaved()) {
    if (schedule_of(setup).grad_sync_func) sync_of_chunk(setup, ddp, w);
    disable(ddp);
  }
  if (++number_ == schedule_of(setup).backwards()) return end(setup, ddp, w);
  if (forwards_ < schedule_of(setup).backwards()) run_forward(setup, w);
  wait_for_gradients(setup, w);
}

// Stages begin a chunk's reduction together: each as many backwards behind its own last one of the chunk as it is stages behind the first.
void ScheduleCall::sync_of_chunk(const Setup& setup, DistributedDataParallel& ddp, ProgramWriter& w) {
  if (number_ < setup.groups.stage) return;
  const ScheduledPass ended = scheduled_backward(schedule_of(setup), setup.stages(), number_ - setup.groups.stage);
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
