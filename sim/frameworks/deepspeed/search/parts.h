// What searches may vary of DeepSpeed: the parts that its SearchSpace is made of.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "sim/frameworks/search_space.h"

namespace gradledger::deepspeed {

std::span<const Variant> variants();
std::span<const Variant> further_variants();  // with Muon
std::span<const FeatureInfo> features();

void draw_engine(std::span<const Variant* const> among, Draws& draws, const Swarm& swarm, Scenario& out);
void draw_options(Draws& draws, const Swarm& swarm, Scenario& out);

// fp16 at stage 0, a loss scale that moves, another accumulation dtype at stages 1 and 2.
void leave_out_open_defects(Scenario& scenario);

// Options to DeepSpeed's defaults. Stage and offload stay: they decide which engine it is.
std::vector<Simplification> simplifications();

const Tuning& tuning();

// The model dtype, with the switch of the configuration that goes with it.
void set_model_dtype(Scenario& scenario, Dtype dtype);

}  // namespace gradledger::deepspeed
