// What searches may vary of fully_shard: the parts that its SearchSpace is made of.
#pragma once

#include <span>
#include <vector>

#include "sim/frameworks/search_space.h"
#include "sim/frameworks/torch/fsdp2/calls.h"
#include "sim/frameworks/torch/fsdp2/config.h"

namespace gradledger::torch::fully_shard {

inline Fsdp2Config& fsdp2_config(Scenario& scenario) { return scenario.engine.config.as<Fsdp2Config>(); }
inline const Fsdp2Config& fsdp2_config(const Scenario& scenario) { return scenario.engine.config.as<Fsdp2Config>(); }

std::span<const FeatureInfo> features();

void draw_engine(std::span<const Variant* const> among, Draws& draws, const Swarm& swarm, Scenario& out);
void draw_options(Draws& draws, const Swarm& swarm, Scenario& out);
void draw_window(const WindowSlot& slot, Draws& draws, const Swarm& swarm, Scenario& out);

// A divide factor that kernels apply where one rank has a whole shard (docs/fsdp2.md). And what the simulator alone says is wrong: parameters that some
// ranks or micro-batches use, whose modules are gathered in another order then, and meshes with offload.
void leave_out_open_defects(Scenario& scenario);

// A method of the root, as a script has it.
ScriptItem call_item(Method method, double value);

// Options to PyTorch's defaults. Offload stays: it decides which engine it is.
std::vector<Simplification> simplifications();

const Tuning& tuning();

}  // namespace gradledger::torch::fully_shard
