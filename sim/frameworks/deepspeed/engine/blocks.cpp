// Blocks of a loop: no_sync and coalesce_grad_reduction, entered or refused, and left at their end or by an exception.
#include "sim/frameworks/deepspeed/engine/deepspeed_engine.h"

namespace gradledger {

// DeepSpeed#7992. The reductions of the block's backwards wait for its end.
void DeepSpeedEngine::enter_coalescing() {
  override_before_coalescing_ = override_boundary_;
  in_no_sync_ = coalescing_ = true;
}

// What is left was entered. A loop that goes on runs the lines of a block that was refused, at whose end there is nothing to leave.
bool DeepSpeedEngine::ends_block() {
  const bool entered = !blocks_.empty() && blocks_.back();
  if (!blocks_.empty()) blocks_.pop_back();
  return entered;
}

// One reduction, as if at a boundary. The engine's override is put back, the optimizer's copy of it is not.
void DeepSpeedEngine::exit_coalescing(ProgramWriter& w) {
  in_no_sync_ = coalescing_ = false;
  override_boundary_ = mirror_ = true;
  flush_coalesced(w);
  override_boundary_ = override_before_coalescing_;
}

// Blocks end on the way out, with all that their end does; live-14: the flush of a coalesced block then has one rank's collectives alone.
void DeepSpeedEngine::raise(const events::Raise& event, ProgramWriter& w) {
  if (coalescing_) exit_coalescing(w);
  in_no_sync_ = false;
  blocks_.clear();
  if (!event.caught) throw FrameworkError{"RuntimeError", "raised by the script"};
}

}  // namespace gradledger
