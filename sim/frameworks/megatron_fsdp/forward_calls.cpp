#include "sim/frameworks/megatron_fsdp/forward_calls.h"

#include <algorithm>
#include <numeric>

namespace gradledger::megatron_fsdp {

// In the order of the parameters, or else in that in which they are used. Neighbours of one unit are used in one call of it.
std::vector<ModuleCall> forward_calls(const EngineContext& context, const Layout& layout, std::uint32_t backward, bool calls_unused) {
  const Timeline& timeline = *context.timeline;
  const Scenario& scenario = *context.scenario;
  const auto used = [&](std::uint32_t p) { return timeline.in_graph(scenario, backward, context.rank, p); };
  std::vector<std::uint32_t> order = timeline.ready_order(scenario, backward, context.rank);
  std::reverse(order.begin(), order.end());
  if (std::is_sorted(order.begin(), order.end())) {
    order.resize(scenario.parameters.size());
    std::iota(order.begin(), order.end(), 0u);
  }
  std::vector<ModuleCall> out;
  for (const std::uint32_t p : order) {
    const std::uint32_t module = layout.groups[layout.group_of[p]].unit;
    if (out.empty() || out.back().module != module) out.push_back({module, {}});
    if (used(p)) out.back().parameters.push_back(p);
  }
  std::erase_if(out, [&](const ModuleCall& call) { return call.module != 0 && !calls_unused && call.parameters.empty(); });
  // A gradient goes on to what was called before, as far as there is something that learns.
  bool learns = false;
  for (ModuleCall& call : out) {
    call.goes_on = learns;
    call.reached = learns = learns || !call.parameters.empty();
  }
  return out;
}

}  // namespace gradledger::megatron_fsdp
