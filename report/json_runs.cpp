// Runs that judge nothing, as JSON.
#include "report/json.h"
#include "report/json_parts.h"

namespace gradledger::report {
namespace {

ordered_json bytes_json(const MemoryBytes& bytes) {
  ordered_json out = ordered_json::object();
  for (std::size_t kind = 0; kind < memory_kinds; ++kind) out[std::string(memory_kind_name(kind))] = bytes[kind];
  return out;
}

std::string space_name(std::size_t space) { return std::string(name_of(static_cast<MemorySpace>(space))); }

ordered_json phase_json(const PhaseAccount& phase) {
  ordered_json out;
  for (std::size_t s = 0; s < space_count; ++s) out[space_name(s)] = {{"resident", bytes_json(phase.space[s].resident)}, {"peak", bytes_json(phase.space[s].peak)}};
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
  for (std::size_t s = 0; s < space_count; ++s) out["start"][space_name(s)] = bytes_json(rank.start[s]);
  out["windows"] = ordered_json::array();
  for (const WindowAccount& window : rank.windows) {
    ordered_json one = ordered_json::object();
    for (const Phase which : phases_shown)
      if (window.of(which).happened) one[std::string(name_of(which))] = phase_json(window.of(which));
    out["windows"].push_back(std::move(one));
  }
  return out;
}

ordered_json row_json(const AccountingRow& row) {
  ordered_json out{{"stage", number_or_null(row.stage)},
                   {"mode", row.mode},
                   {"backwards", row.backwards},
                   {"peak_window_bytes", row.peak_window_bytes},
                   {"resident_window_bytes", row.resident_window_bytes}};
  out["peak_flush_bytes"] = number_or_null(row.peak_flush_bytes);
  out["resident_flush_bytes"] = number_or_null(row.resident_flush_bytes);
  out["gradient_collectives"] = row.gradient.count;
  out["gradient_bytes"] = row.gradient.bytes;
  return out;
}

}  // namespace

std::string Json::text(const AccountingReport& report) const {
  ordered_json out = record("accounting", report.command);
  out["scenario"] = report.scenario;
  out["file"] = report.file;
  out["engine"] = report.engine;
  out["as_of"] = report.as_of;
  out["overrides"] = overrides_json(report.overrides);
  out["world_size"] = report.world_size;
  out["seconds"] = report.seconds;
  out["row"] = row_json(report.row);
  const std::vector<RankAccount>& ranks = report.accounting.ranks;
  out["ranks"] = ordered_json::array();
  for (std::uint32_t r = 0; r < ranks.size() && !report.in_short; ++r) out["ranks"].push_back(rank_json(ranks[r], r));
  out["stopped"] = or_null(report.accounting.stopped.value_or(""));
  return json_line(out);
}

std::string Json::text(const ProducersReport& report) const {
  ordered_json out = record("comparison", report.command);
  out["scenario"] = report.scenario;
  out["file"] = report.file;
  out["compare"] = report.compare;
  out["equal"] = report.equal;
  out["races"] = report.races;
  out["runs"] = report.runs;
  out["records"] = report.records;
  out["text"] = report.text;
  out["seconds"] = report.seconds;
  return json_line(out);
}

}  // namespace gradledger::report
