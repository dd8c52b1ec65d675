#include "ref/coverage.h"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

namespace gradledger::ref {
namespace {

// Why no step of the script is meant to update.
std::string without_update(const Timeline& timeline, std::size_t steps) {
  const auto last_set = std::find_if(timeline.events.rbegin(), timeline.events.rend(), [](const Event& e) { return e.is<events::SetBoundary>(); });
  if (timeline.contract.stated.window == Window::marked)
    return fmt::format("{} step() call{}, none marked: write \"update\": true in each step where the loop means to update", steps, steps == 1 ? "" : "s");
  const std::string calls = fmt::format("{} step() call{}, none at a boundary", steps, steps == 1 ? "" : "s");
  if (last_set != timeline.events.rend() && !last_set->as<events::SetBoundary>()->boundary)
    return calls + ": the boundary was set to false; set it to true before the last backward of a window";
  if (timeline.contract.boundary.of_backwards)
    return fmt::format("{}: {} is {} and a step updates behind that many backwards; write as many before it", calls, timeline.contract.boundary.counted_by,
                       timeline.contract.boundary.calls);
  return fmt::format("{}: {} is {} and one call in {} updates; write a step after each backward, or set the boundary", calls, timeline.contract.boundary.counted_by,
                     timeline.contract.boundary.calls, timeline.contract.boundary.calls);
}

bool contributes(const Workload& workload, const Timeline& timeline, const Backward& b) {
  const auto number = static_cast<std::uint32_t>(&b - timeline.backwards.data());
  for (std::uint32_t r = 0; r < workload.world_size; ++r)
    for (std::uint32_t p = 0; p < workload.parameters.size(); ++p)
      if (workload.parameters[p].numel > 0 && timeline.dropped_at[number][r] == never && timeline.used(workload, number, r, p)) return true;
  return false;
}

std::string why_nothing(const Workload& workload, const Timeline& timeline) {
  const auto is_step = [](const Event& e) { return e.steps(); };
  const auto steps = static_cast<std::size_t>(std::count_if(timeline.events.begin(), timeline.events.end(), is_step));
  if (timeline.backwards.empty()) return "no backward: there is no gradient to apply";
  if (steps == 0 && timeline.contract.boundary.inside_backwards) return "no backward is reduced, and the optimizer runs inside those alone; write one outside of no_sync";
  if (steps == 0) return "no step(): no window is closed; write a step after the last backward of a window";
  std::set<std::uint32_t> closed;
  for (const Event& e : timeline.events)
    if (e.updates()) closed.insert(e.step);
  if (closed.empty()) return without_update(timeline, steps);
  const auto in_closed = [&](const Backward& b) { return closed.contains(b.step); };
  if (std::none_of(timeline.backwards.begin(), timeline.backwards.end(), in_closed)) return "no backward lies in a window that a step closes";
  const auto counts = [&](const Backward& b) { return in_closed(b) && contributes(workload, timeline, b); };
  if (std::none_of(timeline.backwards.begin(), timeline.backwards.end(), counts))
    return "no micro-batch of a window that a step closes has a gradient: none uses a parameter, or a zero_grad drops them all";
  return "no step showed the gradient that it applied";
}

// What a window's step owes is empty where no contribution of it has a gradient.
std::set<std::uint32_t> contributing_windows(const Workload& workload, const Timeline& timeline) {
  std::set<std::uint32_t> out;
  for (const Backward& b : timeline.backwards)
    if (!out.contains(b.step) && contributes(workload, timeline, b)) out.insert(b.step);
  return out;
}

}  // namespace

std::uint64_t Coverage::snapshots() const { return std::accumulate(not_judged.begin(), not_judged.end(), judged); }

Coverage coverage_of(const Workload& workload, const Timeline& timeline, const std::set<std::uint32_t>& applied, const std::set<std::uint32_t>& decided) {
  Coverage out;
  const std::set<std::uint32_t> due = contributing_windows(workload, timeline);
  for (std::uint32_t e = 0; e < timeline.events.size(); ++e) {
    if (!timeline.events[e].updates()) continue;
    ++out.windows_closed;
    out.windows_judged += due.contains(timeline.events[e].step) && (applied.contains(e) || decided.contains(e));
  }
  if (out.windows_judged == 0) out.nothing = why_nothing(workload, timeline);
  return out;
}

}  // namespace gradledger::ref
