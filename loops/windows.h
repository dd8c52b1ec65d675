// Windows that a loop makes of its epochs, and the calls of each on a wrapped model: what loops of packages have in common.
#pragma once

#include "loops/loops.h"

namespace gradledger::loops {

// closes: the last batch of an epoch ends a window. goes_on: batches are counted from one epoch into the next. holds: they are counted anew in each
// epoch, and what is left at its end waits in the gradients.
enum class EpochEnd : std::uint8_t { closes, goes_on, holds };

struct Window {
  std::uint32_t micro_batches = 0;
  bool tail = false;   // an epoch ended it before it was whole
  bool steps = false;  // else the training ends in it

  bool operator==(const Window&) const = default;
};

// How a loop weighs and wraps each micro-batch.
struct Wrapping {
  std::string weight;             // of the loss
  bool tail_by_itself = false;    // a tail is divided by the micro-batches that it has, and not as other windows are
  bool engine_scales = true;      // DeepSpeed divides by its gradient_accumulation_steps
  bool holds_back = false;        // no_sync around all micro-batches but the last of a window
  bool boundary_by_hand = false;  // DeepSpeed: set before each backward, and step() at the boundary alone
  std::string scale;              // gradients are multiplied by it behind the last backward; empty: they are not
  bool clears_before = false;     // gradients are cleared before the first backward of a window, and not behind its step
  EpochEnd end = EpochEnd::closes;
  bool ends_with_whole_windows = false;  // the training has as many updates as its epochs have whole windows
};

std::vector<Window> windows_of(const LoopSetting& setting, const Wrapping& wrapping);

// One micro-batch on DeepSpeed. marks: its step() is one that the loop means to update.
void engine_micro_batch(nlohmann::json& events, const Wrapping& wrapping, const std::string& weight, bool last, bool marks);

Expansion expand(const LoopSetting& setting, const Wrapping& wrapping, const nlohmann::json& contract, bool counts_tokens);

// "1/4"; empty for 1.
std::string one_over(std::uint32_t n);

}  // namespace gradledger::loops
