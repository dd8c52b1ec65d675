// Loops around Megatron-Core: its own, and what people write in its place. Each calls zero_grad_buffer() before a window.
#pragma once

#include "loops/loops.h"

namespace gradledger::loops {

// megatron/training/training.py, train_step, and pipeline_parallel/schedules.py, forward_backward_no_pipelining, at core_v0.19.0.
Expansion megatron_schedule(const LoopSetting& setting);
Expansion megatron_schedule_each(const LoopSetting& setting);

Expansion megatron_manual(const LoopSetting& setting);
Expansion megatron_no_sync(const LoopSetting& setting);
Expansion megatron_never_finalized(const LoopSetting& setting);

}  // namespace gradledger::loops
