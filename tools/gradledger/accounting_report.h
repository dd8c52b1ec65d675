// What a run holds and sends, for people and for programs.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "sim/accounting.h"
#include "verbs/session.h"

namespace gradledger::tool {

// The last window that a step closed (or the open one), in gradient memory of the device: the most that any rank holds or sends.
struct AccountingRow {
  std::optional<std::uint32_t> stage;  // where the framework has such
  std::string mode;                            // "baseline", or the block that holds reductions back: "no_sync", "coalesce"
  std::uint32_t backwards = 0;
  std::uint64_t peak_window_bytes = 0;         // baseline: in all backwards; else inside the block, the flush left out
  std::uint64_t resident_window_bytes = 0;     // likewise after the last of these backwards
  std::optional<std::uint64_t> peak_flush_bytes, resident_flush_bytes;  // of what reduces last: a boundary backward, or the flush
  CollectiveAccount gradient;

  bool holds_back() const { return mode != "baseline"; }
};
AccountingRow accounting_row(const Loaded& loaded, const Accounting& accounting);

// One row a scenario, under a heading.
std::string accounting_table(const std::vector<AccountingRow>& rows);

std::string accounting_report(const Loaded& loaded, const Options& options, const Accounting& accounting);
nlohmann::ordered_json accounting_json(const Loaded& loaded, const Options& options, const Accounting& accounting);

// 0, 12 B, 3.25 MiB: exact where it can be.
std::string size_text(std::uint64_t bytes);

}  // namespace gradledger::tool
