// The configuration of a scenario that DeepSpeed runs, and what it comes to at the scenario's release where a key is left out.
#pragma once

#include "sim/frameworks/deepspeed/config.h"
#include "sim/frameworks/deepspeed/history.h"
#include "sim/scenario/layout.h"
#include "sim/scenario/scenario.h"

namespace gradledger {

inline const DeepSpeedConfig& deepspeed_config(const Scenario& scenario) { return scenario.engine.config.as<DeepSpeedConfig>(); }
inline DeepSpeedConfig& deepspeed_config(Scenario& scenario) { return scenario.engine.config.as<DeepSpeedConfig>(); }

// Whether the state of the code has a change that moved what DeepSpeed documents. Precondition: as_of is known.
bool documents(const Scenario& scenario, Change change);

double gradient_clipping_of(const Scenario& scenario);  // given, or the release's default; 0 with Muon, whose updates are clipped and not the gradient
inline std::uint32_t tensor_parallel_ranks(const Scenario& scenario) { return scenario.layout ? scenario.layout->size("tp") : 1; }
Dtype grad_accum_dtype_of(const Scenario& scenario);     // given, or the model dtype; fp32 for bf16 at stage 0 before DeepSpeed#7515
Dtype communication_dtype_of(const Scenario& scenario);  // given, or the model dtype

// Those of sim/scenario/layout.h in the order of DeepSpeed's optimizer: Muon sorts its matrices, which have one row here, the largest first.
std::vector<RankGroup> sorted_groups(const Scenario& scenario, std::uint32_t rank);

}  // namespace gradledger
