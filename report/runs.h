// Values of the runs that judge nothing: what a scenario holds and sends, and two producers beside each other.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/accounting.h"
#include "sim/scenario/overrides.h"

namespace gradledger::report {

// The last window that a step closed (or the open one), in gradient memory of the device: the most that any rank holds or sends.
struct AccountingRow {
  std::optional<std::uint32_t> stage;  // where the framework has such
  std::string mode;                    // "baseline", or the block that holds reductions back: "no_sync", "coalesce"
  std::uint32_t backwards = 0;
  std::uint64_t peak_window_bytes = 0;                                  // baseline: in all backwards; else inside the block, the flush left out
  std::uint64_t resident_window_bytes = 0;                              // likewise after the last of these backwards
  std::optional<std::uint64_t> peak_flush_bytes, resident_flush_bytes;  // of what reduces last: a boundary backward, or the flush
  CollectiveAccount gradient;

  bool holds_back() const { return mode != "baseline"; }
};

// In the order in which they are shown.
inline constexpr std::array<Phase, phase_count> phases_shown{Phase::accumulate, Phase::boundary, Phase::step, Phase::between};

struct AccountingReport {
  std::string command, scenario, file, engine, as_of;
  std::uint32_t world_size = 0;
  bool in_short = false;  // the row alone
  AccountingRow row;
  Accounting accounting;
  double seconds = 0;               // that it took; filled in by whoever has a clock
  std::vector<Override> overrides;  // said in place of what the file says
};

// The rows of all scenarios under one heading.
struct AccountingSummary {
  std::string command;
  std::vector<AccountingRow> rows;
};

struct ProducersReport {
  std::string command, scenario, file, compare;  // command: repeats it; compare: "host,gpu"
  bool equal = false, races = false;
  std::uint64_t runs = 0, records = 0;  // of each producer
  std::string text;                     // how many records are equal, or where they part
  double seconds = 0;                   // as of an accounting
};

}  // namespace gradledger::report
