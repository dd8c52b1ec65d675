// What the files of this folder share.
#pragma once

#include <span>

#include "sim/frameworks/drawing.h"
#include "sim/frameworks/megatron_fsdp/config.h"
#include "sim/frameworks/search_space.h"

namespace gradledger::megatron_fsdp {

inline MegatronFsdpConfig& megatron_fsdp_config(Scenario& scenario) { return scenario.engine.config.as<MegatronFsdpConfig>(); }
inline const MegatronFsdpConfig& megatron_fsdp_config(const Scenario& scenario) { return scenario.engine.config.as<MegatronFsdpConfig>(); }

// Whether a window may be reduced once alone.
inline bool reduced_once(const MegatronFsdpConfig& config) { return !config.shards_gradients() || config.mesh.has_value(); }

std::span<const FeatureInfo> features();

void draw_engine(std::span<const Variant* const> among, Draws& draws, const Swarm& swarm, Scenario& out);
void draw_options(Draws& draws, const Swarm& swarm, Scenario& out);
void draw_window(const WindowSlot& slot, Draws& draws, const Swarm& swarm, Scenario& out);

ScriptItem auto_sync_item(bool value);
ScriptItem finish_item();

}  // namespace gradledger::megatron_fsdp
