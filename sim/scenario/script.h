// What the ranks are told to do, as it is written: an item for each entry of a script, blocks with theirs inside.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "sim/scenario/formula.h"
#include "sim/scenario/framework_value.h"
#include "sim/scenario/reductions.h"

namespace gradledger {

enum class ScriptKind : std::uint8_t {
  forward,
  backward,
  set_boundary,
  step,
  engine_zero_grad,
  optimizer_zero_grad,
  raise,
  no_sync,
  coalesce,
  repeat,
  overflow,
  set_gradient,
  scale_gradients,
  clip,
  all_reduce,
  finalize,
  save,
  restore,
  unscale,
  of_framework,
};

// What the loop itself reduces over ranks.
enum class Reduced : std::uint8_t { gradients, scalar };

// What an overflow plants in a gradient.
enum class PlantedValue : std::uint8_t { infinity, minus_infinity, not_a_number };

// What a script says of an event that its framework alone has.
struct OwnEvent {
  std::string name;
  FrameworkValue arguments;
  bool reduces = false;                     // by its documentation
  bool heeds_switches = false;              // likewise (FrameworkEvent)
  std::optional<ReductionSwitch> switches;  // by its documentation

  bool operator==(const OwnEvent&) const = default;
};

struct ScriptItem {
  ScriptKind kind = ScriptKind::step;
  std::vector<std::uint32_t> ranks;                         // empty: all. no_sync: who enters it; the events inside run on every rank
  bool boundary = false;                                    // set_boundary
  std::uint32_t micro_batches = 1;                          // backward: this many, one after the other
  std::optional<std::uint32_t> of;                          // backward of an explicit forward, counted since the last step
  std::optional<std::uint32_t> micro_batch;                 // values: which of the given micro-batches; default: position in the window. overflow: the
                                                            // micro-batch of the window that it is planted in
  std::vector<std::string> uses;                            // parameters that get a gradient; empty: as the parameters say. overflow: at most one.
                                                            // set_gradient: the one
  double factor = 1.0;                                      // set_gradient: what the gradient is multiplied by
  bool local = false;                                       // set_gradient: through the API of a rank's own partition
  PlantedValue planted = PlantedValue::infinity;            // overflow
  bool scale_wrt_gas = true;                                // backward: false leaves out the division by gradient_accumulation_steps
  std::uint32_t phases = 1;                                 // backward: autograd ends this many times in it, as with reentrant checkpointing
  bool direct = false;                                      // backward: loss.backward() instead of engine.backward(loss)
  std::uint32_t sum_of = 1;                                 // backward: of the sum of the losses of this many micro-batches, each with a forward of its own
  std::optional<std::uint32_t> raises_after;                // backward: an exception leaves autograd after this many gradients
  bool past_scaler = false;                                 // backward, step: not through the loop's GradScaler
  bool set_to_none = true;                                  // zero_grad: false fills gradients with zeros in place
  bool caught = false;                                      // raise: the loop goes on after the blocks that it leaves
  std::map<std::uint32_t, std::vector<std::string>> order;  // backward, by rank: parameters whose gradients are ready first, in this order
  // What the loss is multiplied by. One formula for all, or by rank, or by micro-batch, or by rank and micro-batch: [rank][micro-batch], a
  // lone rank for all and a lone micro-batch for all. Empty: 1.
  std::vector<std::vector<Formula>> weight;  // backward
  Formula by;                                // scale_gradients
  double max_norm = 0;                       // clip
  std::string over = "world";                // clip, all_reduce: the group
  Reduced reduced = Reduced::gradients;      // all_reduce
  bool mean = true;                          // all_reduce: false: the sum
  bool update = false;                       // step: the loop means to update here
  OwnEvent event;                            // of_framework
  std::uint32_t times = 1;                   // repeat
  std::vector<ScriptItem> items;             // no_sync, coalesce, repeat

  bool operator==(const ScriptItem&) const = default;
};

inline ScriptItem item_of(ScriptKind kind) {
  ScriptItem item;
  item.kind = kind;
  return item;
}

}  // namespace gradledger
