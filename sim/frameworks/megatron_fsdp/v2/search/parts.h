// What the files of this folder share.
#pragma once

#include <span>

#include "sim/frameworks/drawing.h"
#include "sim/frameworks/megatron_fsdp/v2/config.h"
#include "sim/frameworks/search_space.h"

namespace gradledger::megatron_fsdp::v2 {

inline V2Config& v2_config(Scenario& scenario) { return scenario.engine.config.as<V2Config>(); }
inline const V2Config& v2_config(const Scenario& scenario) { return scenario.engine.config.as<V2Config>(); }

std::span<const FeatureInfo> features();

void draw_engine(std::span<const Variant* const> among, Draws& draws, const Swarm& swarm, Scenario& out);
void draw_options(Draws& draws, const Swarm& swarm, Scenario& out);
void draw_window(const WindowSlot& slot, Draws& draws, const Swarm& swarm, Scenario& out);

}  // namespace gradledger::megatron_fsdp::v2
