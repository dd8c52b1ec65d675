// What searches may vary of Megatron-Core: the parts that its SearchSpace is made of.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "sim/frameworks/megatron/config.h"
#include "sim/frameworks/search_space.h"

namespace gradledger::megatron {

inline MegatronConfig& megatron_config(Scenario& scenario) { return scenario.engine.config.as<MegatronConfig>(); }
inline const MegatronConfig& megatron_config(const Scenario& scenario) { return scenario.engine.config.as<MegatronConfig>(); }

std::span<const FeatureInfo> features();

void draw_engine(std::span<const Variant* const> among, Draws& draws, const Swarm& swarm, Scenario& out);
void draw_options(Draws& draws, const Swarm& swarm, Scenario& out);
void draw_window(const WindowSlot& slot, Draws& draws, const Swarm& swarm, Scenario& out);

// Ranks over which a model is cut: how they lie, and what tensor-parallel ones have of each parameter. As the world's stages say, or with more of them.
void draw_layout(Draws& draws, const Swarm& swarm, Scenario& out);
// Worlds of Tuning's wishes about ranks of one model.
void tie_stages(Scenario& out);
void share_sequence(Scenario& out);
void divide_experts(Scenario& out);
// How a schedule is called. Precondition: the configuration has one.
void draw_schedule(Draws& draws, const Swarm& swarm, Scenario& out);

// One of its own events, as a script has it.
ScriptItem event_item(std::string_view name);
// A call of the configuration's schedule with the backwards that it runs. Precondition: it has one.
std::vector<ScriptItem> schedule_call(const Scenario& scenario);

// Each makes the schedule simpler, in the configuration and in every call of the script; false where it is as simple.
bool without_schedule(Scenario& scenario);
bool without_chunks(Scenario& scenario);
bool fewest_micro_batches(Scenario& scenario);
bool without_grad_sync_func(Scenario& scenario);

// Draws about layouts and schedules, by the numbers of Megatron-Core's own features.
inline constexpr Feature tensor_parallel = own_feature(16), laid_out = own_feature(17), schedule_calls = own_feature(18), model_chunks = own_feature(19), aligned = own_feature(20),
                         context_parallel = own_feature(9);

}  // namespace gradledger::megatron
