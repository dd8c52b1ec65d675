#include "sim/scenario/layout.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "sim/base/contract.h"

namespace gradledger {
namespace {

std::uint32_t stage_size(const Scenario& scenario) { return scenario.world_size / scenario.engine.pipeline_stages; }

// Ids count through the groups of a kind, and through the kinds in this order; 0 is the world.
enum class Kind : std::uint8_t { data_parallel, expert_data_parallel, expert_parallel, model_parallel };

std::uint32_t first_id(const Scenario& scenario, Kind kind) {
  const std::uint32_t stages = scenario.engine.pipeline_stages, experts = scenario.engine.expert_parallel_size;
  const std::uint32_t groups[] = {stages, stages * experts, scenario.world_size / experts, stage_size(scenario)};
  std::uint32_t id = 1;
  for (std::size_t earlier = 0; earlier < static_cast<std::size_t>(kind); ++earlier) id += groups[earlier];
  return id;
}

ProcessGroup members(std::uint32_t id, std::uint32_t first, std::uint32_t stride, std::uint32_t count) { return {id, RankList::every(first, stride, count)}; }

}  // namespace

std::uint32_t ProcessGroup::index_of(std::uint32_t rank) const {
  const std::optional<std::uint32_t> at = ranks.place_of(rank);
  expects(at.has_value(), "a rank is asked for in a group that it is no member of");
  return *at;
}

std::uint32_t stage_of(const Scenario& scenario, std::uint32_t rank) { return scenario.layout ? scenario.layout->place("pp", rank) : rank / stage_size(scenario); }

bool holds(const Scenario& scenario, std::uint32_t rank, std::uint32_t parameter) {
  const Parameter& p = scenario.parameters[parameter];
  const std::uint32_t experts = scenario.engine.expert_parallel_size;
  const bool laid = scenario.layout && scenario.layout->has("ep");
  if (stage_of(scenario, rank) != p.pipeline_stage || (p.part && place_in(scenario, p.part->over, rank) != p.part->number)) return false;
  return !p.expert || (laid ? scenario.layout->place("ep", rank) : rank % stage_size(scenario) % experts) == *p.expert % experts;
}

ProcessGroup data_parallel_group(const Scenario& scenario, std::uint32_t rank) {
  const std::uint32_t stage = stage_of(scenario, rank), size = stage_size(scenario);
  return members(scenario.engine.pipeline_stages == 1 ? 0 : first_id(scenario, Kind::data_parallel) + stage, stage * size, 1, size);
}

ProcessGroup expert_data_parallel_group(const Scenario& scenario, std::uint32_t rank) {
  const std::uint32_t experts = scenario.engine.expert_parallel_size, stage = stage_of(scenario, rank), size = stage_size(scenario);
  const std::uint32_t which = rank % size % experts;
  ProcessGroup out = experts == 1 ? data_parallel_group(scenario, rank)
                                  : members(first_id(scenario, Kind::expert_data_parallel) + stage * experts + which, stage * size + which, experts, size / experts);
  out.communicator = communicator_of_experts;
  return out;
}

ProcessGroup expert_parallel_group(const Scenario& scenario, std::uint32_t rank) {
  const std::uint32_t experts = scenario.engine.expert_parallel_size, which = rank / experts;
  return members(first_id(scenario, Kind::expert_parallel) + which, which * experts, 1, experts);
}

ProcessGroup model_parallel_group(const Scenario& scenario, std::uint32_t rank) {
  const std::uint32_t size = stage_size(scenario), which = rank % size;
  return members(first_id(scenario, Kind::model_parallel) + which, which, size, scenario.engine.pipeline_stages);
}

std::vector<RankGroup> optimizer_groups(const Scenario& scenario, std::uint32_t rank) {
  std::vector<OptimizerGroup> given = scenario.engine.param_groups;
  if (given.empty()) {
    given.resize(1);
    for (std::uint32_t p = 0; p < scenario.parameters.size(); ++p) given[0].parameters.push_back(p);
  }
  std::vector<RankGroup> out;
  for (const bool experts : {false, true}) {
    const ProcessGroup peers = experts ? expert_data_parallel_group(scenario, rank) : data_parallel_group(scenario, rank);
    for (std::uint32_t g = 0; g < given.size(); ++g) {
      RankGroup mine{g, {}, scenario.engine.optimizer_of(given[g]), experts, peers};
      for (std::uint32_t p : given[g].parameters)
        if (scenario.parameters[p].has_gradient() && scenario.parameters[p].expert.has_value() == experts && holds(scenario, rank, p)) mine.parameters.push_back(p);
      if (!mine.parameters.empty()) out.push_back(std::move(mine));
    }
  }
  return out;
}

namespace {

// Each group of a kind once, in the order of its first rank. Those of a kind share no rank, so a rank that was met is not asked again: a world of
// 65,536 ranks has groups as large.
template <class GroupOf>
std::vector<ProcessGroup> distinct(const Scenario& scenario, GroupOf&& group_of) {
  std::vector<ProcessGroup> out;
  std::vector<bool> met(scenario.world_size);
  for (std::uint32_t r = 0; r < scenario.world_size; ++r) {
    if (met[r]) continue;
    out.push_back(group_of(scenario, r));
    for (const std::uint32_t member : out.back().ranks) met[member] = true;
  }
  return out;
}

std::vector<std::vector<std::uint32_t>> sets_of(const std::vector<ProcessGroup>& groups) {
  std::vector<std::vector<std::uint32_t>> out;
  for (const ProcessGroup& group : groups) out.push_back(group.ranks.listed());
  return out;
}

}  // namespace

std::vector<std::vector<std::uint32_t>> neighbour_stages(const Scenario& scenario) { return sets_of(distinct(scenario, model_parallel_group)); }
std::vector<std::vector<std::uint32_t>> neighbour_experts(const Scenario& scenario) { return sets_of(distinct(scenario, expert_parallel_group)); }

namespace {

// Neighbours in a stage share a sequence.
ProcessGroup sequence_group(const Scenario& scenario, std::uint32_t rank) {
  const std::uint32_t size = scenario.engine.sequence_parallel_size;
  return members(0, rank / size * size, 1, size);
}

// Ids of the groups that the loop uses count from here on, through their names in order.
std::uint32_t first_loop_id(const Scenario& scenario) { return first_id(scenario, Kind::model_parallel) + stage_size(scenario); }

bool uses_groups(const std::vector<ScriptItem>& items) {
  return std::any_of(items.begin(), items.end(),
                     [](const ScriptItem& item) { return item.kind == ScriptKind::clip || item.kind == ScriptKind::all_reduce || uses_groups(item.items); });
}

}  // namespace

Groups named_groups(const Scenario& scenario) {
  Groups out(scenario.world_size);
  const EngineConfig& engine = scenario.engine;
  out.add("dp", sets_of(distinct(scenario, data_parallel_group)));
  if (engine.expert_parallel_size > 1) {
    out.add("expert_dp", sets_of(distinct(scenario, expert_data_parallel_group)));
    out.add("expert", sets_of(distinct(scenario, expert_parallel_group)));
  }
  if (engine.pipeline_stages > 1) out.add("pipeline", sets_of(distinct(scenario, model_parallel_group)));
  if (engine.sequence_parallel_size > 1) out.add("sequence", sets_of(distinct(scenario, sequence_group)));
  if (scenario.layout)
    for (auto& [name, sets] : scenario.layout->groups()) out.add(name, sets);
  for (const auto& [name, groups] : scenario.groups) out.add(name, groups);
  return out;
}

ProcessGroup group_named(const Scenario& scenario, const Groups& groups, const std::string& name, std::uint32_t rank) {
  if (name == "world") return {0, RankList::every(0, 1, scenario.world_size)};
  ProcessGroup out{0, groups.of(name, rank)};
  if (name == "rank") return out;
  out.id = first_loop_id(scenario);
  for (const auto& [named, sets] : groups.named()) {
    for (const auto& set : sets) {
      if (named == name && set.front() == out.ranks.front()) return out;  // those of a name share no rank
      ++out.id;
    }
  }
  return out;
}

std::vector<std::vector<std::uint32_t>> process_groups(const Scenario& scenario) {
  std::vector<std::vector<std::uint32_t>> out(1);
  out[0].resize(scenario.world_size);
  std::iota(out[0].begin(), out[0].end(), 0u);
  const auto add = [&](auto&& group_of) {
    for (const ProcessGroup& group : distinct(scenario, group_of)) {
      if (group.id == 0) continue;
      if (out.size() <= group.id) out.resize(group.id + 1);
      out[group.id] = group.ranks.listed();
    }
  };
  add(data_parallel_group);
  add(expert_data_parallel_group);
  if (scenario.engine.expert_parallel_size > 1) add(expert_parallel_group);
  if (scenario.engine.pipeline_stages > 1) add(model_parallel_group);
  if (!uses_groups(scenario.script) && scenario.groups.empty() && !scenario.layout) return out;
  out.resize(first_loop_id(scenario));
  const Groups groups = named_groups(scenario);
  for (const auto& [name, sets] : groups.named()) out.insert(out.end(), sets.begin(), sets.end());
  return out;
}

Rational averaging_quotient(const Scenario& scenario) { return Rational(stage_size(scenario), scenario.engine.sequence_parallel_size); }

double averaging_divisor(const Scenario& scenario) { return value_of(averaging_quotient(scenario)); }

// The optimizer's groups of a stage's ranks are numbered alike: DeepSpeed demands that the experts fill every share.
std::optional<InputError> expert_problem(const Scenario& scenario) {
  const auto numbers = [&](std::uint32_t rank) {
    std::vector<std::uint32_t> of_experts;
    for (const RankGroup& group : optimizer_groups(scenario, rank))
      if (group.of_experts) of_experts.push_back(group.given);
    return of_experts;
  };
  for (std::uint32_t r = 0; r < scenario.world_size; ++r) {
    std::uint32_t first = 0;
    while (stage_of(scenario, first) != stage_of(scenario, r)) ++first;
    if (numbers(r) != numbers(first))
      return InputError{"/engine/expert_parallel_size", "is " + std::to_string(scenario.engine.expert_parallel_size) + ", which gives one of ranks " + std::to_string(first) +
                                                            " and " + std::to_string(r) +
                                                            " alone an expert to train of some parameter group; expected experts for all ranks of a stage"};
  }
  return std::nullopt;
}

// Every degree divides what it is a part of, and no rank is left without parameters.
std::optional<InputError> layout_problem(const Scenario& scenario) {
  const EngineConfig& engine = scenario.engine;
  const auto divides = [](std::uint32_t part, std::uint32_t whole, const char* key, const char* of) -> std::optional<InputError> {
    if (whole % part == 0) return std::nullopt;
    return InputError{std::string("/engine/") + key, "is " + std::to_string(part) + ", which does not divide " + of + ", " + std::to_string(whole) + "; expected a divisor of it"};
  };
  if (auto problem = divides(engine.pipeline_stages, scenario.world_size, "pipeline_stages", "world_size")) return problem;
  const std::uint32_t ranks = scenario.world_size / engine.pipeline_stages;
  if (auto problem = divides(engine.expert_parallel_size, ranks, "expert_parallel_size", "the ranks of a pipeline stage")) return problem;
  if (auto problem = divides(engine.sequence_parallel_size, ranks, "sequence_parallel_size", "the ranks of a pipeline stage")) return problem;
  if (auto problem = stated_layout_problem(scenario)) return problem;
  std::vector<bool> learns(scenario.world_size);
  for (std::uint32_t p = 0; p < scenario.parameters.size(); ++p) {
    if (scenario.parameters[p].pipeline_stage >= engine.pipeline_stages)
      return InputError{parameter_pointer(scenario, p) + "/pipeline_stage", "is " + std::to_string(scenario.parameters[p].pipeline_stage) +
                                                                                "; expected a stage below /engine/pipeline_stages, " + std::to_string(engine.pipeline_stages)};
    for (std::uint32_t r = 0; r < scenario.world_size; ++r)
      if (scenario.parameters[p].has_gradient() && scenario.parameters[p].numel > 0 && holds(scenario, r, p)) learns[r] = true;
  }
  const auto idle = std::find(learns.begin(), learns.end(), false);
  if (idle == learns.end()) return engine.expert_parallel_size > 1 ? expert_problem(scenario) : std::nullopt;
  return InputError{"/parameters", "leave rank " + std::to_string(idle - learns.begin()) + " without an element that is trainable; expected at least one on every rank"};
}

}  // namespace gradledger
