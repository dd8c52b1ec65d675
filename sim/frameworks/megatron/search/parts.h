// What searches may vary of Megatron-Core: the parts that its SearchSpace is made of.
#pragma once

#include <span>
#include <string_view>

#include "sim/frameworks/megatron/config.h"
#include "sim/frameworks/search_space.h"

namespace gradledger::megatron {

inline MegatronConfig& megatron_config(Scenario& scenario) { return scenario.engine.config.as<MegatronConfig>(); }
inline const MegatronConfig& megatron_config(const Scenario& scenario) { return scenario.engine.config.as<MegatronConfig>(); }

std::span<const FeatureInfo> features();

void draw_engine(std::span<const Variant* const> among, Draws& draws, const Swarm& swarm, Scenario& out);
void draw_options(Draws& draws, const Swarm& swarm, Scenario& out);
void draw_window(const WindowSlot& slot, Draws& draws, const Swarm& swarm, Scenario& out);

// One of its own events, as a script has it.
ScriptItem event_item(std::string_view name);

}  // namespace gradledger::megatron
