#include "sim/frameworks/megatron/parallel_groups.h"

#include <algorithm>
#include <initializer_list>
#include <map>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>

namespace gradledger::megatron {
namespace {

using Ranks = std::vector<std::uint32_t>;
using Sets = std::vector<Ranks>;

}  // namespace

// What the scenario states; else the layout's stages and shares of experts; else each rank by itself. Looked up once for all ranks.
class Axes {
 public:
  explicit Axes(const Scenario& s) : world_(s.world_size), laid_(s.layout.has_value()), numbered_(process_groups(s)) {
    for (const char* name : {"tp", "cp", "sp", "pp", "ep", "etp"}) read(s, name);
    if (axes_["etp"].sets.empty()) axes_["etp"] = axes_["tp"];
    std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t> met;
    auto& [places, sizes] = data_parallel_;
    for (std::uint32_t r = 0; r < world_; ++r) places.push_back(met[{place("tp", r), place("pp", r)}]++);
    for (std::uint32_t r = 0; r < world_; ++r) sizes.push_back(met[{place("tp", r), place("pp", r)}]);
  }

  Ranks stated(const char* name, std::uint32_t rank) const {
    const Axis& axis = axes_.at(name);
    return axis.set_of.empty() || axis.set_of[rank] == by_itself ? Ranks{rank} : axis.sets[axis.set_of[rank]];
  }
  std::uint32_t place(const char* name, std::uint32_t rank) const {
    const Axis& axis = axes_.at(name);
    return axis.place.empty() ? 0 : axis.place[rank];
  }
  // The ranks that have the same place as a rank in every one of these groups.
  Ranks alike(std::initializer_list<const char*> names, std::uint32_t rank) const {
    Ranks out(world_);
    std::iota(out.begin(), out.end(), 0u);
    for (const char* name : names)
      if (const Axis& axis = axes_.at(name); !axis.place.empty()) std::erase_if(out, [&](std::uint32_t r) { return axis.place[r] != axis.place[rank]; });
    return out;
  }
  // For each rank, its place among the data-parallel ranks, and how many these are: those with its place in "tp" and in "pp".
  const std::pair<Ranks, Ranks>& data_parallel() const { return data_parallel_; }
  // Their number in the scenario's groups; no_group for a rank by itself that has none.
  ProcessGroup numbered(Ranks ranks) const {
    if (laid_ && ranks.size() == 1) return {ParallelGroups::no_group, std::move(ranks)};
    const auto known = std::find(numbered_.begin(), numbered_.end(), ranks);
    return {known == numbered_.end() ? ParallelGroups::no_group : static_cast<std::uint32_t>(known - numbered_.begin()), std::move(ranks)};
  }
  std::uint32_t world() const { return world_; }

 private:
  static constexpr std::uint32_t by_itself = 0xFFFFFFFFu;  // in no set
  struct Axis {
    std::vector<Ranks> sets;                   // sorted
    std::vector<std::uint32_t> set_of, place;  // by rank; empty where there is no set
  };

  void read(const Scenario& s, const char* name) {
    Axis& axis = axes_[name];
    if (Sets given = stated_sets(s, name); !given.empty()) {
      axis.sets = std::move(given);
      for (Ranks& set : axis.sets) std::sort(set.begin(), set.end());
    } else {
      const bool stages = std::string_view(name) == "pp" && s.engine.pipeline_stages > 1, experts = std::string_view(name) == "ep" && s.engine.expert_parallel_size > 1;
      if (!stages && !experts) return;
      std::vector<bool> met(world_);
      for (std::uint32_t r = 0; r < world_; ++r) {
        if (met[r]) continue;
        axis.sets.push_back((stages ? model_parallel_group(s, r) : expert_parallel_group(s, r)).ranks.listed());
        for (const std::uint32_t member : axis.sets.back()) met[member] = true;
      }
    }
    axis.set_of.assign(world_, by_itself);
    axis.place.assign(world_, 0);
    for (std::uint32_t set = 0; set < axis.sets.size(); ++set)
      for (std::uint32_t i = 0; i < axis.sets[set].size(); ++i) {
        axis.set_of[axis.sets[set][i]] = set;
        axis.place[axis.sets[set][i]] = i;
      }
  }

  std::uint32_t world_;
  bool laid_;                    // by a layout, which names a group of one rank too
  std::vector<Ranks> numbered_;  // all groups of the scenario, by id
  std::map<std::string_view, Axis> axes_;
  std::pair<Ranks, Ranks> data_parallel_;
};

namespace {

std::uint32_t place_in(const Ranks& group, std::uint32_t rank) { return static_cast<std::uint32_t>(std::lower_bound(group.begin(), group.end(), rank) - group.begin()); }

Ranks joined(const Axes& axes, const Ranks& ranks, const char* name) {
  Ranks out;
  for (const std::uint32_t r : ranks)
    for (const std::uint32_t other : axes.stated(name, r)) out.push_back(other);
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

// A group of data-parallel ranks, cut into as many parts as there are instances: the rank's part, and the ranks with its place in the others.
std::pair<Ranks, Ranks> cut(const Ranks& group, std::uint32_t instances, std::uint32_t rank) {
  const auto part = static_cast<std::uint32_t>(group.size()) / instances;
  const std::uint32_t at = place_in(group, rank);
  Ranks inside, across;
  for (std::uint32_t i = 0; i < group.size(); ++i) {
    if (i / part == at / part) inside.push_back(group[i]);
    if (i % part == at % part) across.push_back(group[i]);
  }
  return {inside, across};
}

// Groups of the same ranks are numbered in one order on all of them. A lone instance of the distributed optimizer has the data-parallel ranks' own.
void number_communicators(ParallelGroups& g, std::uint32_t instances) {
  std::vector<const ProcessGroup*> before;
  const auto number = [&](ProcessGroup& group) {
    group.communicator = static_cast<std::uint32_t>(std::count_if(before.begin(), before.end(), [&](const ProcessGroup* other) { return other->id == group.id; }));
    before.push_back(&group);
  };
  for (ProcessGroup* group : {&g.data_context, &g.data, &g.expert_data, &g.tensor, &g.pipeline, &g.model, &g.expert_model, &g.of_instance, &g.embedding, &g.between_instances})
    number(*group);
  if (instances > 1) number(g.instance);
  else g.instance.communicator = g.data_context.communicator;
}

ParallelGroups groups_of(const Axes& axes, std::uint32_t instances, std::uint32_t rank) {
  ParallelGroups out;
  const auto of = [&](Ranks ranks) { return axes.numbered(std::move(ranks)); };
  out.tensor = of(axes.stated("tp", rank));
  out.pipeline = of(axes.stated("pp", rank));
  out.context = of(axes.stated("cp", rank));
  out.expert = of(axes.stated("ep", rank));
  out.data = of(axes.alike({"tp", "pp", "cp", "sp"}, rank));
  const Ranks data_context = axes.alike({"tp", "pp"}, rank);
  out.data_context = of(data_context);
  out.expert_data = of(axes.alike({"etp", "pp", "ep"}, rank));
  const Ranks model = joined(axes, axes.stated("tp", rank), "pp");
  out.model = of(model);
  out.expert_model = of(joined(axes, joined(axes, axes.stated("etp", rank), "pp"), "ep"));
  const auto [inside, across] = cut(data_context, instances, rank);
  out.instance = of(inside);
  out.between_instances = of(across);
  const auto& [places, sizes] = axes.data_parallel();
  const auto instance = [&, &places = places, &sizes = sizes](std::uint32_t r) { return places[r] / (sizes[r] / instances); };
  Ranks of_instance;
  for (std::uint32_t r = 0; r < axes.world(); ++r)
    if (instance(r) == instance(rank)) of_instance.push_back(r);
  out.of_instance = of(of_instance);
  out.stage = axes.place("pp", rank);
  Ranks ends{out.pipeline.ranks.front(), out.pipeline.ranks.back()};
  if (ends.front() == ends.back()) ends.pop_back();
  out.embedding = of(ends);
  number_communicators(out, instances);
  return out;
}

}  // namespace

void meet_in(const ProcessGroup& group, CollectiveCall call, ProgramWriter& w) {
  if (group.id == ParallelGroups::no_group) return;
  call.group = group.id;
  call.communicator = group.communicator;
  w.collective(call);
}

namespace {

// Of each rank, the first that has its place in every one of these groups.
std::vector<std::uint32_t> first_alike(const Scenario& s, std::initializer_list<const char*> names) {
  const Axes axes(s);
  std::map<Ranks, std::uint32_t> first;
  std::vector<std::uint32_t> out;
  for (std::uint32_t r = 0; r < s.world_size; ++r) {
    Ranks places;
    for (const char* name : names) places.push_back(axes.place(name, r));
    out.push_back(first.try_emplace(std::move(places), r).first->second);
  }
  return out;
}

}  // namespace

std::vector<std::uint32_t> first_data_parallel(const Scenario& s) { return first_alike(s, {"tp", "pp"}); }

std::vector<std::uint32_t> first_expert_data_parallel(const Scenario& s) { return first_alike(s, {"etp", "pp", "ep"}); }

std::vector<std::uint32_t> last_stages(const Scenario& s, const RankList& ranks) {
  const Axes axes(s);
  std::vector<std::uint32_t> out;
  for (const std::uint32_t r : ranks) out.push_back(axes.stated("pp", r).back());
  return out;
}

std::vector<std::uint32_t> first_stages(const Scenario& s) {
  const Axes axes(s);
  std::vector<std::uint32_t> out;
  for (std::uint32_t r = 0; r < s.world_size; ++r) out.push_back(axes.stated("pp", r).front());
  return out;
}

std::optional<InputError> instances_problem(const Scenario& s, std::uint32_t instances) {
  const auto refused = [](const std::string& why) { return InputError{"/engine/config/ddp/num_distributed_optimizer_instances", why}; };
  if (instances == 0) return refused("is 0; expected at least 1");
  if (instances == 1) return std::nullopt;
  const Ranks sizes = Axes(s).data_parallel().second;
  for (std::uint32_t r = 0; r < s.world_size; ++r)
    if (sizes[r] % instances != 0)
      return refused("is " + std::to_string(instances) + ", which does not divide the " + std::to_string(sizes[r]) + " data-parallel ranks of rank " + std::to_string(r) +
                     "; expected a divisor of them");
  return std::nullopt;
}

WorldGroups::WorldGroups(const Scenario& scenario) : axes_(std::make_shared<const Axes>(scenario)) {}

ParallelGroups WorldGroups::of(std::uint32_t instances, std::uint32_t rank) const { return groups_of(*axes_, instances, rank); }

std::optional<InputError> parallel_problem(const Scenario& s, std::uint32_t instances) {
  for (const char* name : {"tp", "cp", "pp", "ep"}) {
    const auto groups = s.groups.find(name);
    if (groups == s.groups.end()) continue;
    for (const Ranks& group : groups->second)
      if (group.size() != groups->second.front().size()) return InputError{std::string("/groups/") + name, "has groups of different size; expected as many ranks in each"};
  }
  if (auto problem = instances_problem(s, instances)) return problem;
  const Axes axes(s);
  for (std::uint32_t r = 0; r < s.world_size; ++r) {
    const ParallelGroups g = groups_of(axes, instances, r);
    const std::pair<const char*, const ProcessGroup*> met[] = {{"dp_cp", &g.data_context},      {"expert_dp", &g.expert_data}, {"mp", &g.model},
                                                               {"expert_mp", &g.expert_model},  {"instance", &g.instance},     {"between_instances", &g.between_instances},
                                                               {"of_instance", &g.of_instance}, {"embedding", &g.embedding}};
    for (const auto& [name, group] : met)
      if (group->id == ParallelGroups::no_group && group->size() > 1) {
        std::string ranks;
        for (const std::uint32_t rank : group->ranks) ranks += (ranks.empty() ? "" : ", ") + std::to_string(rank);
        return InputError{"/groups", std::string("name no group of ranks ") + ranks + ", which meet; expected one more, \"" + name + "\""};
      }
  }
  return std::nullopt;
}

}  // namespace gradledger::megatron
