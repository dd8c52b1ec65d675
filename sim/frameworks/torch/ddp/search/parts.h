// What searches may vary of DistributedDataParallel: the parts that its SearchSpace is made of.
#pragma once

#include <span>

#include "sim/frameworks/search_space.h"
#include "sim/frameworks/torch/ddp/calls.h"
#include "sim/frameworks/torch/ddp/config.h"

namespace gradledger::torch::data_parallel {

inline DdpConfig& ddp_config(Scenario& scenario) { return scenario.engine.config.as<DdpConfig>(); }
inline const DdpConfig& ddp_config(const Scenario& scenario) { return scenario.engine.config.as<DdpConfig>(); }

std::span<const FeatureInfo> features();

ScriptItem call_item(Call call);

void draw_engine(std::span<const Variant* const> among, Draws& draws, const Swarm& swarm, Scenario& out);
void draw_options(Draws& draws, const Swarm& swarm, Scenario& out);
void draw_window(const WindowSlot& slot, Draws& draws, const Swarm& swarm, Scenario& out);

}  // namespace gradledger::torch::data_parallel
