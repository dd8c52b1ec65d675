// Runs that judge nothing, for people.
#include <fmt/format.h>

#include "ref/describe.h"
#include "report/terminal.h"
#include "report/words.h"

namespace gradledger::report {
namespace {

constexpr std::size_t device = 0;

const char* const nothing_judged = "accounting of a dry run: no value is computed and nothing is judged";

// "weights 64 MiB, gradients 32 MiB": what there is, without the sums.
std::string split_text(const MemoryBytes& bytes) {
  std::string out;
  for (std::size_t kind = 0; kind < buffer_purposes; ++kind)
    if (bytes[kind] > 0) out += fmt::format("{}{} {}", out.empty() ? "" : ", ", memory_kind_name(kind), size_text(bytes[kind]));
  return out;
}

std::string phase_lines(const PhaseAccount& phase, Phase which) {
  std::string out;
  for (std::size_t s = 0; s < space_count; ++s) {
    const SpaceAccount& space = phase.space[s];
    if (s != device && space.peak[all_memory] == 0) continue;
    out += fmt::format("  {:10}  {:6}  {:>12}  {:>12}  {:>12}  {:>12}  {}\n", name_of(which), name_of(static_cast<MemorySpace>(s)), size_text(space.resident[gradient_memory]),
                       size_text(space.peak[gradient_memory]), size_text(space.resident[all_memory]), size_text(space.peak[all_memory]), split_text(space.resident));
  }
  for (const auto& [key, account] : phase.collectives) {
    const auto& [purpose, kind, group, dtype] = key;
    out += fmt::format("  {:10}  sends   {} {} of {} elements of {} in all, {} ({}{})\n", name_of(which), account.count, name_of(kind), account.elements, name_of(dtype),
                       size_text(account.bytes), name_of(purpose), group == 0 ? "" : fmt::format(", group {}", group));
  }
  return out;
}

std::string window_lines(const WindowAccount& window) {
  std::string out = fmt::format("  {:10}  {:6}  {:>26}  {:>26}\n", "", "", "gradient memory", "all memory");
  out += fmt::format("  {:10}  {:6}  {:>12}  {:>12}  {:>12}  {:>12}  {}\n", "phase", "space", "resident", "peak", "resident", "peak", "resident, by purpose");
  for (const Phase which : phases_shown)
    if (window.of(which).happened) out += phase_lines(window.of(which), which);
  return out;
}

// Windows of a rank that are alike and follow one another are shown once, and so are ranks that are alike.
std::string rank_lines(const RankAccount& rank, const std::string& ranks) {
  std::string out;
  for (std::size_t s = 0; s < space_count; ++s)
    if (s == device || rank.start[s][all_memory] > 0)
      out += fmt::format("\nat the start, {}: {} {} ({})\n", ranks, name_of(static_cast<MemorySpace>(s)), size_text(rank.start[s][all_memory]), split_text(rank.start[s]));
  for (std::uint32_t first = 0; first < rank.windows.size();) {
    std::vector<std::uint32_t> alike;
    std::uint32_t next = first;
    while (next < rank.windows.size() && rank.windows[next] == rank.windows[first]) alike.push_back(next++);
    out += fmt::format("\n{}, {}\n{}", ref::numbered("window", alike), ranks, window_lines(rank.windows[first]));
    first = next;
  }
  return out;
}

}  // namespace

std::string Terminal::text(const AccountingReport& report) const {
  if (report.in_short) return "";  // its row is in the summary
  const std::vector<RankAccount>& ranks = report.accounting.ranks;
  std::string out = head(report.command);
  out += fmt::format("scenario {}: {}, as of {}, world {}\n{}\n", report.scenario, report.engine, report.as_of, report.world_size, nothing_judged);
  if (!report.overrides.empty()) out += "not as the file says: " + overrides_text(report.overrides) + "\n";
  std::vector<bool> shown(ranks.size(), false);
  for (std::uint32_t r = 0; r < ranks.size(); ++r) {
    if (shown[r]) continue;
    std::vector<std::uint32_t> alike;
    for (std::uint32_t other = r; other < ranks.size(); ++other) {
      if (shown[other] || !(ranks[other] == ranks[r])) continue;
      shown[other] = true;
      alike.push_back(other);
    }
    out += rank_lines(ranks[r], ref::numbered("rank", alike));
  }
  if (report.accounting.stopped) out += fmt::format("\nstopped: {}\n", *report.accounting.stopped);
  return fit(out);
}

std::string Terminal::text(const AccountingSummary& summary) const {
  std::string out = head(summary.command);
  out += fmt::format("{:5}  {:8}  {:>9}  {:>14}  {:>14}  {:>14}  {:>14}  {:>11}  {:>12}\n", "stage", "mode", "backwards", "peak window", "window res.", "peak flush", "flush res.",
                     "collectives", "sent");
  const auto text = [](const std::optional<std::uint64_t>& bytes) { return bytes ? size_text(*bytes) : std::string("-"); };
  bool holds_back = false;
  for (const AccountingRow& row : summary.rows) {
    holds_back = holds_back || row.holds_back();
    out += fmt::format("{:<5}  {:8}  {:>9}  {:>14}  {:>14}  {:>14}  {:>14}  {:>11}  {:>12}\n", row.stage ? fmt::format("Z{}", *row.stage) : "-", row.mode, row.backwards,
                       size_text(row.peak_window_bytes) + (row.holds_back() ? " + T" : ""), size_text(row.resident_window_bytes), text(row.peak_flush_bytes),
                       text(row.resident_flush_bytes), row.gradient.count, size_text(row.gradient.bytes));
  }
  if (holds_back) out += "T: activations, the weight gradient that is being formed and gathered weights of one micro-batch; not derivable from a scenario\n";
  return fit(out);
}

std::string Terminal::text(const ProducersReport& report) const { return fit(fmt::format("{}: {}\n", report.scenario, report.text)); }

}  // namespace gradledger::report
