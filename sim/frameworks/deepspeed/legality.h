// What DeepSpeed refuses of a script, event by event: one table. The engines raise by it, and whoever writes scripts stays within it.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "sim/frameworks/deepspeed/behaviour.h"
#include "sim/engine/engine.h"
#include "sim/frameworks/deepspeed/engines.h"
#include "sim/frameworks/deepspeed/settings.h"
#include "sim/scenario/timeline.h"

namespace gradledger {

// Where a rank's script stands, as far as refusals go.
struct Protocol {
  const Scenario* scenario = nullptr;
  const Behaviour* behaviour = nullptr;
  bool in_block = false;             // no_sync, or coalesce_grad_reduction
  bool reduces_by_parameter = true;  // what coalesce_grad_reduction asks of the wrapper: stages 1 to 3 but BF16_Optimizer
  bool zero_wrapper = true;          // what loss.backward() asks of it: stages 1 to 3 but FP16_UnfusedOptimizer

  const DeepSpeedConfig& config() const { return deepspeed_config(*scenario); }
  // step() is the boundary. Before DeepSpeed#8184 the key was not known, and ignored.
  bool unmanaged() const { return !config().managed_gradient_accumulation && behaviour->unmanaged_accumulation != UnmanagedAccumulation::absent; }
};

// Refused are events of this kind where `applies`.
struct LegalityRule {
  EventKind event;
  bool direct_only;  // backward: of those called on the loss
  bool (*applies)(const Protocol&);
  std::string_view type;  // Python's class of the exception
  std::string (*message)(const Protocol&);
};

// The first rule that applies is the framework's answer.
std::span<const LegalityRule> legality_rules();

// Outside every block. Views both.
Protocol protocol_of(const Scenario& scenario, const Behaviour& behaviour, deepspeed::Wrapper wrapper);

// What the framework raises at an event; nothing where it takes it. Refusals that depend on what gradients hold are the engines' own.
std::optional<FrameworkError> refusal_of(const Protocol& protocol, EventKind event, bool direct = false);

}  // namespace gradledger
