#include "tools/gradledger/accounting_report.h"

#include <algorithm>

#include <fmt/format.h>

#include "ref/describe.h"
#include "sim/frameworks/framework.h"
#include "report/version/version.h"

namespace gradledger::tool {
namespace {

using nlohmann::ordered_json;

constexpr std::size_t device = 0;
constexpr Phase phases[] = {Phase::accumulate, Phase::boundary, Phase::step, Phase::between};

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
  for (Phase which : phases)
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

ordered_json bytes_json(const MemoryBytes& bytes) {
  ordered_json out = ordered_json::object();
  for (std::size_t kind = 0; kind < memory_kinds; ++kind) out[std::string(memory_kind_name(kind))] = bytes[kind];
  return out;
}

ordered_json phase_json(const PhaseAccount& phase) {
  ordered_json out;
  for (std::size_t s = 0; s < space_count; ++s)
    out[std::string(name_of(static_cast<MemorySpace>(s)))] = {{"resident", bytes_json(phase.space[s].resident)}, {"peak", bytes_json(phase.space[s].peak)}};
  out["collectives"] = ordered_json::array();
  for (const auto& [key, account] : phase.collectives)
    out["collectives"].push_back({{"purpose", name_of(std::get<0>(key))},
                                  {"kind", name_of(std::get<1>(key))},
                                  {"group", std::get<2>(key)},
                                  {"dtype", name_of(std::get<3>(key))},
                                  {"count", account.count},
                                  {"elements", account.elements},
                                  {"bytes", account.bytes}});
  return out;
}

ordered_json rank_json(const RankAccount& rank, std::uint32_t number) {
  ordered_json out{{"rank", number}};
  for (std::size_t s = 0; s < space_count; ++s) out["start"][std::string(name_of(static_cast<MemorySpace>(s)))] = bytes_json(rank.start[s]);
  out["windows"] = ordered_json::array();
  for (const WindowAccount& window : rank.windows) {
    ordered_json one = ordered_json::object();
    for (Phase which : phases)
      if (window.of(which).happened) one[std::string(name_of(which))] = phase_json(window.of(which));
    out["windows"].push_back(std::move(one));
  }
  return out;
}

ordered_json row_json(const AccountingRow& row) {
  ordered_json out{{"stage", row.stage ? ordered_json(*row.stage) : ordered_json(nullptr)},
                   {"mode", row.mode}, {"backwards", row.backwards}, {"peak_window_bytes", row.peak_window_bytes}, {"resident_window_bytes", row.resident_window_bytes}};
  if (row.peak_flush_bytes) out["peak_flush_bytes"] = *row.peak_flush_bytes;
  if (row.resident_flush_bytes) out["resident_flush_bytes"] = *row.resident_flush_bytes;
  out["gradient_collectives"] = row.gradient.count;
  out["gradient_bytes"] = row.gradient.bytes;
  return out;
}

std::string mode_of(const Timeline& timeline, std::uint32_t window) {
  for (const Event& event : timeline.events) {
    if (event.step == window && event.kind == EventKind::no_sync_enter) return "no_sync";
    if (event.step == window && event.kind == EventKind::coalesce_enter) return "coalesce";
  }
  return "baseline";
}

}  // namespace

std::string size_text(std::uint64_t bytes) {
  constexpr std::uint64_t mebibyte = 1u << 20;
  if (bytes < mebibyte) return fmt::format("{} B", bytes);
  if (bytes % mebibyte == 0) return fmt::format("{} MiB", bytes / mebibyte);
  return fmt::format("{:.3f} MiB", static_cast<double>(bytes) / static_cast<double>(mebibyte));
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

std::string accounting_table(const std::vector<AccountingRow>& rows) {
  std::string out = fmt::format("{:5}  {:8}  {:>9}  {:>14}  {:>14}  {:>14}  {:>14}  {:>11}  {:>12}\n", "stage", "mode", "backwards", "peak window", "window res.", "peak flush", "flush res.",
                                "collectives", "sent");
  const auto text = [](const std::optional<std::uint64_t>& bytes) { return bytes ? size_text(*bytes) : std::string("-"); };
  bool holds_back = false;
  for (const AccountingRow& row : rows) {
    holds_back = holds_back || row.holds_back();
    out += fmt::format("{:<5}  {:8}  {:>9}  {:>14}  {:>14}  {:>14}  {:>14}  {:>11}  {:>12}\n", row.stage ? fmt::format("Z{}", *row.stage) : "-", row.mode, row.backwards,
                       size_text(row.peak_window_bytes) + (row.holds_back() ? " + T" : ""), size_text(row.resident_window_bytes), text(row.peak_flush_bytes),
                       text(row.resident_flush_bytes), row.gradient.count, size_text(row.gradient.bytes));
  }
  if (holds_back) out += "T: activations, the weight gradient that is being formed and gathered weights of one micro-batch; not derivable from a scenario\n";
  return out;
}

std::string accounting_report(const Loaded& loaded, const Options& options, const Accounting& accounting) {
  std::string out = fmt::format("# {}\n", repeat_command({loaded.path}, options));
  out += fmt::format("scenario {}: {}, as of {}, world {}\n{}\n", loaded.scenario.name, loaded.engine, loaded.scenario.engine.as_of.base, loaded.scenario.world_size, nothing_judged);
  std::vector<bool> shown(accounting.ranks.size(), false);
  for (std::uint32_t r = 0; r < accounting.ranks.size(); ++r) {
    if (shown[r]) continue;
    std::vector<std::uint32_t> alike;
    for (std::uint32_t other = r; other < accounting.ranks.size(); ++other) {
      if (shown[other] || !(accounting.ranks[other] == accounting.ranks[r])) continue;
      shown[other] = true;
      alike.push_back(other);
    }
    out += rank_lines(accounting.ranks[r], ref::numbered("rank", alike));
  }
  if (accounting.stopped) out += fmt::format("\nstopped: {}\n", *accounting.stopped);
  return out;
}

ordered_json accounting_json(const Loaded& loaded, const Options& options, const Accounting& accounting) {
  ordered_json out;
  out["schema_version"] = 1;
  out["tool"] = tool_json();
  out["command"] = repeat_command({loaded.path}, options);
  out["scenario"] = loaded.scenario.name;
  out["file"] = loaded.path.string();
  out["engine"] = loaded.engine;
  out["as_of"] = loaded.scenario.engine.as_of.base;
  out["world_size"] = loaded.scenario.world_size;
  out["verdict"] = "not judged";
  out["row"] = row_json(accounting_row(loaded, accounting));
  if (!options.summary) {
    out["ranks"] = ordered_json::array();
    for (std::uint32_t r = 0; r < accounting.ranks.size(); ++r) out["ranks"].push_back(rank_json(accounting.ranks[r], r));
  }
  if (accounting.stopped) out["stopped"] = *accounting.stopped;
  return out;
}

}  // namespace gradledger::tool
