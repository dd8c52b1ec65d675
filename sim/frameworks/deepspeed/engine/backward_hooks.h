// Which backward a ZeRO wrapper takes itself to be in, and so whether loss.backward() ends with the wrapper's epilogue.
#pragma once

#include <cstdint>

#include "sim/frameworks/deepspeed/behaviour.h"
#include "sim/engine/state_fold.h"

namespace gradledger {

class BackwardHooks {
 public:
  void forward() { seen_ = queued_ = false; }
  void begin() { ends_here_ = counted_ = false; }

  // The prologue. DeepSpeed#7780: it also asks autograd to call back at the end, unless that was asked since the last forward.
  void enter() {
    ++depth_;
    seen_ = true;
    queue();
  }

  void exit() {
    if (depth_ > 0) --depth_;
    counted_ = false;
  }

  // A gradient hook that counts. A graph whose prologue ran before, or comes later, enters by it.
  void gradient(DirectEpilogue rule) {
    counted_ = true;
    if (rule == DirectEpilogue::none || rule == DirectEpilogue::hook_count) return;
    if (depth_ == 0 && seen_) ++depth_;
    if (depth_ > 0) queue();
  }

  // Whether the end of a graph is the end of a backward.
  bool end_of_graph(DirectEpilogue rule, bool hooks_count) const {
    if (rule == DirectEpilogue::hook_count) return hooks_count && depth_ > 0 && counted_;
    if (!ends_here_ || depth_ == 0) return false;
    // DeepSpeed#8245: a backward before this one never ended, and none does any more.
    return rule != DirectEpilogue::end_of_sound_graph || depth_ == 1;
  }

  void fold(StateFold& f) const {
    f.number(depth_);
    f.number(seen_);
    f.number(queued_);
  }

 private:
  void queue() {
    if (queued_) return;
    queued_ = ends_here_ = true;
  }

  std::uint32_t depth_ = 0;  // backwards that were entered and not left
  bool seen_ = false;        // one was since the last forward
  bool queued_ = false;      // the callback was asked for since then
  bool ends_here_ = false;   // by the backward that runs
  bool counted_ = false;     // a hook of it since the last end: the last one that is expected ends a backward, and where there is none nothing does
};

}  // namespace gradledger
