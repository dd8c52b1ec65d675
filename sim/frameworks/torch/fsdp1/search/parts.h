// What searches may vary of FullyShardedDataParallel: the parts that its SearchSpace is made of.
#pragma once

#include <span>

#include "sim/frameworks/search_space.h"
#include "sim/frameworks/torch/fsdp1/config.h"

namespace gradledger::torch::flat_sharded {

inline Fsdp1Config& fsdp1_config(Scenario& scenario) { return scenario.engine.config.as<Fsdp1Config>(); }
inline const Fsdp1Config& fsdp1_config(const Scenario& scenario) { return scenario.engine.config.as<Fsdp1Config>(); }

std::span<const FeatureInfo> features();

void draw_engine(std::span<const Variant* const> among, Draws& draws, const Swarm& swarm, Scenario& out);
void draw_options(Draws& draws, const Swarm& swarm, Scenario& out);
void draw_window(const WindowSlot& slot, Draws& draws, const Swarm& swarm, Scenario& out);

// Modules that are called and not used, flat parameters of one element, sums in 16 bits where reductions are not (docs/fsdp1.md). And what the simulator alone says is wrong: CPU offload with
// use_orig_params or with gradients of low precision, where the device was read and never recorded.
void leave_out_open_defects(Scenario& scenario);

}  // namespace gradledger::torch::flat_sharded
