#include "verbs/accounting.h"

#include <algorithm>

#include "sim/frameworks/framework.h"
#include "verbs/command.h"

namespace gradledger::verbs {
namespace {

using report::AccountingRow;

constexpr std::size_t device = 0;

std::string mode_of(const Timeline& timeline, std::uint32_t window) {
  for (const Event& event : timeline.events) {
    if (event.step == window && event.is<events::EnterNoSync>()) return "no_sync";
    if (event.step == window && event.is<events::EnterCoalesce>()) return "coalesce";
  }
  return "baseline";
}

AccountingRow accounting_row(const Loaded& loaded, const Accounting& accounting) {
  const Timeline& timeline = loaded.timeline;
  const std::uint32_t window = accounting.windows_closed > 0 ? accounting.windows_closed - 1 : timeline.steps - 1;
  AccountingRow row;
  row.stage = framework_of(loaded.scenario).stage(loaded.scenario);
  row.mode = mode_of(timeline, window);
  for (const Backward& backward : timeline.backwards) row.backwards += backward.step == window;
  for (const RankAccount& rank : accounting.ranks) {
    const WindowAccount& w = rank.windows[window];
    const PhaseAccount &accumulate = w.of(Phase::accumulate), &boundary = w.of(Phase::boundary);
    const auto bytes = [](const PhaseAccount& phase) -> const SpaceAccount& { return phase.space[device]; };
    row.peak_window_bytes = std::max(row.peak_window_bytes, bytes(accumulate).peak[gradient_memory]);
    if (!row.holds_back()) row.peak_window_bytes = std::max(row.peak_window_bytes, bytes(boundary).peak[gradient_memory]);
    const bool ends_at_boundary = boundary.happened && !row.holds_back();
    row.resident_window_bytes = std::max(row.resident_window_bytes, bytes(ends_at_boundary ? boundary : accumulate).resident[gradient_memory]);
    if (boundary.happened) {
      row.peak_flush_bytes = std::max(row.peak_flush_bytes.value_or(0), bytes(boundary).peak[gradient_memory]);
      row.resident_flush_bytes = std::max(row.resident_flush_bytes.value_or(0), bytes(boundary).resident[gradient_memory]);
    }
    if (const CollectiveAccount sent = w.total(Purpose::gradient); sent.bytes >= row.gradient.bytes) row.gradient = sent;
  }
  return row;
}

}  // namespace

report::AccountingReport accounting_report(const Loaded& loaded, const Options& options) {
  report::AccountingReport out;
  out.command = repeat_command({loaded.path}, options);
  out.scenario = loaded.scenario.name;
  out.file = loaded.path.string();
  out.engine = loaded.engine;
  out.as_of = loaded.scenario.engine.as_of.base;
  out.world_size = loaded.scenario.world_size;
  out.overrides = loaded.overrides;
  out.in_short = options.summary;
  out.accounting = account(loaded, options, nullptr);
  out.row = accounting_row(loaded, out.accounting);
  return out;
}

}  // namespace gradledger::verbs
