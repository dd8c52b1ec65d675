// What a scenario states of how ranks lie: groups by a layout or written out, and which of them hold parts of a parameter or share its gradient.
#include <algorithm>
#include <string>

#include "sim/scenario/layout.h"

namespace gradledger {
namespace {

using Sets = std::vector<std::vector<std::uint32_t>>;

Sets sorted(Sets sets) {
  for (std::vector<std::uint32_t>& set : sets) std::sort(set.begin(), set.end());
  std::sort(sets.begin(), sets.end());
  return sets;
}

std::string text_of(const Sets& sets) {
  std::string out;
  for (std::size_t i = 0; i < sets.size() && i < 4; ++i) {
    out += i ? ", [" : "[";
    for (std::size_t r = 0; r < sets[i].size() && r < 16; ++r) out += (r ? ", " : "") + std::to_string(sets[i][r]);
    out += sets[i].size() > 16 ? ", ...]" : "]";
  }
  return "[" + out + (sets.size() > 4 ? ", ...]" : "]");
}

// Of a parameter's gradient. Without a word of its own, tensor-parallel ranks that hold all of it compute the same.
std::string shared_over(const Parameter& p, const Groups& groups) {
  if (!p.summed_over.empty()) return p.summed_over;
  if (!p.averaged_over.empty()) return p.averaged_over;
  const std::string usual = p.expert && groups.contains("etp") ? "etp" : "tp";
  return groups.contains(usual) && (!p.part || p.part->over != usual) ? usual : "rank";
}

GradientShare share_of(const Parameter& p, const Groups& groups) {
  const std::string over = shared_over(p, groups);
  GradientShare out;
  out.first.resize(groups.world_size());
  for (std::uint32_t r = 0; r < out.first.size(); ++r) out.first[r] = r;
  std::size_t size = 1;
  if (const auto named = groups.named().find(over); named != groups.named().end())
    for (const std::vector<std::uint32_t>& set : named->second) {
      size = set.size();
      for (const std::uint32_t r : set) out.first[r] = set.front();
    }
  out.copies = p.summed_over.empty() && p.averaged_over.empty();
  if (!p.averaged_over.empty()) out.divisor = Rational(static_cast<std::int64_t>(size));
  return out;
}

}  // namespace

std::uint32_t place_in(const Scenario& scenario, const std::string& group, std::uint32_t rank) {
  if (scenario.layout && scenario.layout->has(group)) return scenario.layout->place(group, rank);
  const auto stated = scenario.groups.find(group);
  if (stated == scenario.groups.end()) return 0;
  for (const std::vector<std::uint32_t>& set : stated->second)
    if (const auto at = std::find(set.begin(), set.end(), rank); at != set.end()) return static_cast<std::uint32_t>(at - set.begin());
  return 0;
}

std::string averaging_group(const Scenario& scenario) { return scenario.layout && scenario.layout->groups().at("dp_cp").size() > 1 ? "dp_cp" : "world"; }

Sets stated_sets(const Scenario& scenario, const std::string& group) {
  if (const auto stated = scenario.groups.find(group); stated != scenario.groups.end()) return stated->second;
  if (!scenario.layout) return {};
  const auto all = scenario.layout->groups();
  const auto named = all.find(group);
  return named == all.end() ? Sets{} : named->second;
}

std::optional<InputError> stated_layout_problem(const Scenario& s) {
  if (!s.layout) return std::nullopt;
  const auto differs = [&](const char* key, std::uint32_t engine, const char* dimension) -> std::optional<InputError> {
    if (engine == s.layout->size(dimension)) return std::nullopt;
    return InputError{std::string("/engine/") + key, "is " + std::to_string(engine) + ", and " + dimension + " of /layout is " + std::to_string(s.layout->size(dimension)) +
                                                         "; expected the same, or one of the two alone"};
  };
  if (auto problem = differs("pipeline_stages", s.engine.pipeline_stages, "pp")) return problem;
  if (auto problem = differs("expert_parallel_size", s.engine.expert_parallel_size, "ep")) return problem;
  for (const auto& [name, sets] : s.layout->groups()) {
    const auto written = s.groups.find(name);
    if (written != s.groups.end() && sorted(written->second) != sorted(sets))
      return InputError{"/groups/" + name, "is " + text_of(written->second) + ", and by /layout it is " + text_of(sets) + "; expected the same, or one of the two alone"};
  }
  return std::nullopt;
}

void share_gradients(const Scenario& scenario, const Groups& groups, Contract& contract) {
  bool any = false;
  for (const Parameter& p : scenario.parameters) {
    GradientShare share = share_of(p, groups);
    for (std::uint32_t r = 0; r < share.first.size(); ++r) any |= share.first[r] != r;
    const auto known = std::find(contract.shares.begin(), contract.shares.end(), share);
    contract.share_of.push_back(static_cast<std::uint32_t>(known - contract.shares.begin()));
    if (known == contract.shares.end()) contract.shares.push_back(std::move(share));
  }
  if (any) return;
  contract.shares.clear();
  contract.share_of.clear();
}

std::uint32_t parameter_entry(const Scenario& scenario, std::uint32_t parameter) {
  std::uint32_t entry = 0;
  for (std::uint32_t p = 0; p < parameter; ++p) entry += !scenario.parameters[p].part || scenario.parameters[p].part->number + 1 == scenario.parameters[p].part->count;
  return entry;
}

std::string parameter_pointer(const Scenario& scenario, std::uint32_t parameter) { return "/parameters/" + std::to_string(parameter_entry(scenario, parameter)); }

}  // namespace gradledger
