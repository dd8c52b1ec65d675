// Turns evidence into findings, each with a name, a place and its contributions. A file each for what kind of evidence is named.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "ref/classify.h"
#include "ref/passes.h"

namespace gradledger::ref {

class Naming {
 public:
  Naming(const Workload& workload, const Timeline& timeline, Evidence& evidence, Ledger& ledger, std::uint64_t cells_max, Verdict& verdict)
      : workload_(workload), timeline_(timeline), evidence_(evidence), ledger_(ledger), cells_max_(cells_max), verdict_(verdict), skipped_(windows_to_skip(timeline)) {}

  void run();

 private:
  // ---- findings so far
  Finding& add(FindingClass finding, std::uint32_t event, std::uint32_t rank);  // of the event's window
  Finding& add(FindingClass finding, std::uint32_t event, std::uint32_t rank, std::uint32_t step);
  Finding* find(FindingClass finding, std::uint32_t step, std::uint32_t rank);
  static void also_in(Finding& finding, const std::string& buffer);
  template <class Fits>
  bool found_in(std::uint32_t step, Fits&& fits) const {
    const auto of_step = of_step_.find(step);
    return of_step != of_step_.end() && std::any_of(of_step->second.begin(), of_step->second.end(), [&](std::size_t i) { return fits(verdict_.findings[i]); });
  }
  bool decided(std::uint32_t step) const;
  bool follows(std::uint32_t step) const;
  bool follows(const StepMismatch& mismatch) const;
  bool gradients_are_named(std::uint32_t step) const;
  // By what is known up to the end of the window; exceptions behind the event do not.
  bool explained(std::uint32_t step, std::uint32_t event = std::numeric_limits<std::uint32_t>::max()) const;
  bool left_open(std::uint32_t first_step, std::uint32_t last_step) const;
  bool left_open(const SnapshotKey& key) const;

  // ---- structure.cpp: what stops or poisons a run
  void name_structural();
  void name_race(const RaceRecord& record);
  bool races_before(std::uint32_t step) const;
  void name_deadlock(const DeadlockRecord& deadlock);

  // ---- loops.cpp: what the loop and the framework see differently
  void name_early_updates();
  bool cut_short(std::uint32_t step) const;
  void name_surplus();

  // ---- rows.cpp: rows that do not balance
  RowContext context_of(const LedgerEntry& entry) const;
  bool follows_unequal_loops(std::uint32_t step) const;
  bool follows_unwritten(const LedgerEntry& entry, const LedgerRow& row) const;
  void name_entry(const LedgerEntry& entry);
  const Mismatch* fingerprint_of(const SnapshotKey& key) const;
  void record(const LedgerEntry& entry, const LedgerRow& row, const Diagnosis& diagnosis);
  static void name_contributions(Finding& finding, const std::vector<Miscounted>& contributions);
  static void list_alike(Finding& finding, const LedgerEntry& entry, const Diagnosis& diagnosis);
  static void weigh(Finding& finding, const LedgerRow& row, const std::vector<Miscounted>& contributions);
  std::uint32_t first_event_of(const LedgerEntry& entry) const;

  // ---- values.cpp: gradients that are nowhere, values that rounding does not explain
  void name_coverage();
  void name_values();
  std::string open_text(const SnapshotKey& key) const;
  void name_divergences();

  // ---- steps.cpp: what steps decided
  void name_steps(bool after_gradients);
  void name_clipping();

  // ---- table.cpp: the table of applied gradients
  void list_applied();
  void balanced_row(const JudgedSnapshot& seen);
  void weigh_coverage();

  const Workload& workload_;
  const Timeline& timeline_;
  Evidence& evidence_;
  Ledger& ledger_;
  std::uint64_t cells_max_;  // listed
  Verdict& verdict_;
  std::vector<bool> skipped_;  // by window
  // What is due in a snapshot that balances, as of the last that was listed.
  struct DueRow {
    std::uint32_t step = 0, event = 0;
    bool at_end = false;
    std::vector<Contribution> columns;
    std::map<std::uint32_t, std::vector<double>> weights;  // by the first parameter of which the same is due
  };
  std::optional<DueRow> due_;
  // Places of findings, which hold until run() sorts them: a script of thousands of windows has as many findings. Of equals the first.
  std::map<std::tuple<FindingClass, std::uint32_t, std::uint32_t>, std::size_t> place_;  // by class, step, rank
  std::map<std::uint32_t, std::vector<std::size_t>> of_step_;
  std::uint32_t first_race_ = never;                        // step
  std::uint32_t first_hidden_ = never;                      // likewise: of weights that nobody can tell, where values are not finite or no sum
  std::map<std::uint32_t, std::uint32_t> first_mismatch_;   // event, by step
  std::map<SnapshotKey, const Mismatch*> first_in_values_;  // of several of a snapshot
};

}  // namespace gradledger::ref
