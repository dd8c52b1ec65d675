// The ranks that a rank meets, by what they share. Scenarios name groups as Megatron's parallel_state does, by a layout or one by one: "tp", "cp", "pp",
// "ep", "etp"; a name that is not given is of ranks by themselves, "etp" that of "tp". What is not stated follows: ranks that agree in "tp" and "pp" are "dp_cp".
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "sim/base/result.h"
#include "sim/program/program.h"
#include "sim/scenario/layout.h"
#include "sim/scenario/scenario.h"

namespace gradledger::megatron {

// Of one rank. A group of one rank that the scenario does not state has the id no_group: nothing is sent in it. parallel_state makes a communicator for each,
// so ranks that share two groups meet in either by itself: a reduction over tensor-parallel ranks is no match for a norm over the same ranks as a model's.
struct ParallelGroups {
  static constexpr std::uint32_t no_group = 0xFFFFFFFFu;

  ProcessGroup tensor, pipeline, context, expert;
  ProcessGroup data, data_context, expert_data;  // expert_data: ranks with the same experts
  ProcessGroup model, expert_model;              // that a gradient's norm is summed over: tensor x pipeline, and with the expert-parallel ranks
  ProcessGroup instance, between_instances;      // of the distributed optimizer, and across its instances
  ProcessGroup of_instance;                      // all ranks of the rank's instance: what its gradient norms are summed over, or of the world, before 0.13.0
  ProcessGroup embedding;                        // first and last stage

  std::uint32_t stage = 0;

  bool first_stage() const { return stage == 0; }
  bool last_stage() const { return stage + 1 == pipeline.size(); }
};

// ours: the collective in this group, and nothing in no_group.
void meet_in(const ProcessGroup& group, CollectiveCall call, ProgramWriter& w);

// Of each rank, the first of those that average dense gradients with it.
std::vector<std::uint32_t> first_data_parallel(const Scenario& scenario);

// Likewise of those that average experts with it.
std::vector<std::uint32_t> first_expert_data_parallel(const Scenario& scenario);

// Of each of these ranks, the last one of its own pipeline.
std::vector<std::uint32_t> last_stages(const Scenario& scenario, const RankList& ranks);

// Of each rank, the first one of its own pipeline.
std::vector<std::uint32_t> first_stages(const Scenario& scenario);

// Data-parallel ranks of any rank that cannot be cut into that many instances.
std::optional<InputError> instances_problem(const Scenario& scenario, std::uint32_t instances);

// The groups of every rank. What a scenario states is looked up once for all of them; copies share it.
class WorldGroups {
 public:
  explicit WorldGroups(const Scenario& scenario);

  // Precondition: instances_problem() has none.
  ParallelGroups of(std::uint32_t instances, std::uint32_t rank) const;

 private:
  std::shared_ptr<const class Axes> axes_;
};

// Groups that do not fit each other, or that ranks must meet in and the scenario has no name for.
std::optional<InputError> parallel_problem(const Scenario& scenario, std::uint32_t instances);

}  // namespace gradledger::megatron
