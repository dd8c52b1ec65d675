#include <utility>

#include "search/shrink/edits.h"
#include "search/shrink/layouts.h"
#include "sim/frameworks/search_space.h"

namespace gradledger::search {
namespace {

void add_layout_edits(std::vector<Edit>& out) {
  out.emplace_back(drop_layout);
  for (const char* dimension : {"pp", "tp", "cp"}) out.push_back([dimension](Scenario& s) { return without_dimension(s, dimension); });
  out.emplace_back(in_the_usual_order);
  // A layout goes as a whole: parameters that live somewhere else need it.
  out.push_back([](Scenario& s) {
    const bool was = s.engine.pipeline_stages > 1;
    s.engine.pipeline_stages = 1;
    for (Parameter& p : s.parameters) p.pipeline_stage = 0;
    return was;
  });
  out.push_back([](Scenario& s) {
    const bool was = s.engine.expert_parallel_size > 1;
    s.engine.expert_parallel_size = 1;
    for (Parameter& p : s.parameters) p.expert.reset();
    return was;
  });
  out.push_back([](Scenario& s) { return std::exchange(s.engine.sequence_parallel_size, 1u) != 1; });
}

}  // namespace

// Layout and optimizer, then the framework's own options.
void add_option_edits(const Scenario& scenario, std::vector<Edit>& out) {
  add_layout_edits(out);
  out.push_back([](Scenario& s) { return !std::exchange(s.engine.param_groups, {}).empty(); });
  out.push_back([](Scenario& s) { return std::exchange(s.engine.optimizer, OptimizerConfig{}) != OptimizerConfig{}; });
  const SearchSpace* space = framework_of(scenario).search_space();
  if (!space) return;
  for (Simplification& simpler : space->simplifications()) out.push_back(std::move(simpler));
}

}  // namespace gradledger::search
