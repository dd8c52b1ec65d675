// Megatron's schedules as far as they decide which backwards synchronise: without a pipeline, 1F1B, and interleaved ones of several chunks of the model.
#pragma once

#include <cstdint>
#include <set>

#include "sim/frameworks/megatron/distributed_data_parallel.h"
#include "sim/frameworks/megatron/setup.h"

namespace gradledger::megatron {

// A forward or a backward of a call: of which chunk of the model, and of which micro-batch.
struct ScheduledPass {
  std::uint32_t chunk = 0, micro_batch = 0;
};

// The order is that of every rank. Precondition: number < schedule.backwards(), of which there are as many forwards.
ScheduledPass scheduled_forward(const ScheduleOptions& schedule, std::uint32_t stages, std::uint32_t number);   // schedules.py: get_schedule_table, at 0.16.1
ScheduledPass scheduled_backward(const ScheduleOptions& schedule, std::uint32_t stages, std::uint32_t number);  // schedules.py: get_schedule_table, at 0.16.1

// One call of forward_backward_func on a rank. Backwards come after the forwards of a later one or not; what synchronises does not depend on it. What stages
// wait for does: the call itself runs the forwards that come before the first backward, and each backward what comes before the next.
class ScheduleCall {
 public:
  void begin(const Setup& setup, DistributedDataParallel& ddp, ProgramWriter& w);           // schedules.py: disable_grad_sync, at 0.16.1
  void before_backward(const Setup& setup, DistributedDataParallel& ddp);                   // schedules.py: backward_step_helper_preprocess, at 0.16.1
  void after_backward(const Setup& setup, DistributedDataParallel& ddp, ProgramWriter& w);  // schedules.py: backward_step_helper_postprocess, at 0.16.1
  bool runs() const { return runs_; }
  // Whether the next backward is of the first micro-batch of its chunk.
  bool at_first_micro_batch(const Setup& setup) const { return next(setup).micro_batch == 0; }

 private:
  ScheduledPass next(const Setup& setup) const;
  void run_forward(const Setup& setup, ProgramWriter& w);               // schedules.py: forward_step_helper, at 0.16.1
  void wait_for_gradients(const Setup& setup, ProgramWriter& w) const;  // p2p_communication.py: recv_backward, at 0.16.1
  void enable(DistributedDataParallel& ddp);
  void disable(DistributedDataParallel& ddp);
  void sync_of_chunk(const Setup& setup, DistributedDataParallel& ddp, ProgramWriter& w);  // schedules.py: backward_step_helper_postprocess, at 0.16.1
  void end(const Setup& setup, DistributedDataParallel& ddp, ProgramWriter& w);            // schedules.py: forward_backward_pipelining_without_interleaving, at 0.16.1

  bool runs_ = false, disabled_ = false;
  std::uint32_t number_ = 0;              // of the next backward
  std::uint32_t forwards_ = 0;            // that ran
  std::set<std::uint32_t> synchronized_;  // chunks
};

}  // namespace gradledger::megatron
