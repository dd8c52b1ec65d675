// Which ranks hold a parameter, and between which of them its gradient is reduced. Facts of the scenario alone.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/base/rational.h"
#include "sim/base/result.h"
#include "sim/scenario/groups.h"
#include "sim/scenario/rank_list.h"
#include "sim/scenario/scenario.h"

namespace gradledger {

// Ranks that meet in collectives. 0 is the world.
struct ProcessGroup {
  std::uint32_t id = 0;
  RankList ranks;
  std::uint32_t communicator = 0;  // of these ranks, below communicators_max: a framework may make several

  std::uint32_t size() const { return ranks.size(); }
  std::uint32_t index_of(std::uint32_t rank) const;  // precondition: a member
};

// Pipeline stage s is world / stages neighbouring ranks. In it, expert e lives on the ranks whose number in the stage is e modulo the
// expert-parallel size; everything else on all of them.
bool holds(const Scenario& scenario, std::uint32_t rank, std::uint32_t parameter);
std::uint32_t stage_of(const Scenario& scenario, std::uint32_t rank);

ProcessGroup data_parallel_group(const Scenario& scenario, std::uint32_t rank);
// In a communicator of its own, be it of all data-parallel ranks. The first two are theirs: stage 3 gathers weights in the second.
inline constexpr std::uint32_t communicator_of_experts = 2;
ProcessGroup expert_data_parallel_group(const Scenario& scenario, std::uint32_t rank);

ProcessGroup expert_parallel_group(const Scenario& scenario, std::uint32_t rank);  // one rank for each share of the experts

ProcessGroup model_parallel_group(const Scenario& scenario, std::uint32_t rank);  // one rank of each pipeline stage

// What one of the optimizer's groups holds on a rank. Experts stand in groups of their own behind all others, as MoE training splits them.
struct RankGroup {
  std::uint32_t given = 0;                // its number as the scenario gives them
  std::vector<std::uint32_t> parameters;  // that have a gradient, in the group's order
  OptimizerConfig optimizer;              // with its own learning rate and decay
  bool of_experts = false;
  ProcessGroup peers;  // the ranks that hold the same, and divide it
};

// Groups that hold nothing on the rank are left out.
std::vector<RankGroup> optimizer_groups(const Scenario& scenario, std::uint32_t rank);

// The rank's place in its set of a group that the scenario's layout or its groups name; 0 where neither does.
std::uint32_t place_in(const Scenario& scenario, const std::string& group, std::uint32_t rank);

// The ranks that average a gradient of one part of a model: "dp_cp" of a layout, and without one "world".
std::string averaging_group(const Scenario& scenario);

// Sets of a group that the layout or the scenario names; empty where neither does.
std::vector<std::vector<std::uint32_t>> stated_sets(const Scenario& scenario, const std::string& group);

// Groups that scenario and layout both name, and differently; sizes of the layout that the engine has otherwise; parts of parameters over no group.
std::optional<InputError> stated_layout_problem(const Scenario& scenario);

// What ranks of "tp" (of experts: of "etp"), and those that a parameter names, have of gradients together.
void share_gradients(const Scenario& scenario, const Groups& groups, Contract& contract);

// Stages as neighbours, and shares of experts as neighbours in a stage: what the engine's sizes say without a layout.
std::vector<std::vector<std::uint32_t>> neighbour_stages(const Scenario& scenario);
std::vector<std::vector<std::uint32_t>> neighbour_experts(const Scenario& scenario);

// Where a parameter stands in the scenario: parts are one entry.
std::uint32_t parameter_entry(const Scenario& scenario, std::uint32_t parameter);
std::string parameter_pointer(const Scenario& scenario, std::uint32_t parameter);

// Members by id; empty where the scenario has no group of that id.
std::vector<std::vector<std::uint32_t>> process_groups(const Scenario& scenario);

// By name: those that the scenario states, and "dp", "expert_dp", "expert", "pipeline" and "sequence" where the framework has them.
Groups named_groups(const Scenario& scenario);

// The group of that name which a rank is in. "rank" has the id of no group, and nobody to meet. Precondition: named_groups() contains it.
ProcessGroup group_named(const Scenario& scenario, const Groups& groups, const std::string& name, std::uint32_t rank);

// What the sum over a parameter's ranks is divided by: ranks of a stage over the sequence-parallel size, for experts too.
Rational averaging_quotient(const Scenario& scenario);
double averaging_divisor(const Scenario& scenario);

// What is wrong with the sizes of the groups or with the places of the parameters, if anything.
std::optional<InputError> layout_problem(const Scenario& scenario);

}  // namespace gradledger
