#include "ref/alike_parameters.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace gradledger::ref {

std::vector<std::uint32_t> alike_parameters(const Workload& workload, const Timeline& timeline) {
  const bool named = !timeline.gradients_set.empty() ||
                     std::any_of(timeline.backwards.begin(), timeline.backwards.end(), [](const Backward& b) { return !b.uses.empty() || b.raises_after.has_value(); });
  const auto holders = [&](std::uint32_t p) { return timeline.contract.holders.empty() ? std::vector<std::uint32_t>{} : timeline.contract.holders[p]; };
  // Of ranks that share a gradient one parameter is due a sum, another the gradient of the first.
  const auto share = [&](std::uint32_t p) { return timeline.contract.share_of.empty() ? 0 : timeline.contract.share_of[p]; };
  std::map<std::tuple<bool, std::uint32_t, std::vector<std::uint32_t>>, std::uint32_t> first;
  std::vector<std::uint32_t> out;
  for (std::uint32_t p = 0; p < workload.parameters.size(); ++p) {
    const Parameter& parameter = workload.parameters[p];
    out.push_back(named || parameter.used_by ? p : first.try_emplace({parameter.has_gradient(), share(p), holders(p)}, p).first->second);
  }
  return out;
}

}  // namespace gradledger::ref
