// Runs in which contributions share elements: what they showed of the snapshots that do not balance, and the weights that are worked out of it.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "ref/judge.h"
#include "ref/ledger.h"
#include "ref/packed.h"
#include "ref/taking_apart.h"

namespace gradledger::ref {

class PackedRuns {
 public:
  PackedRuns(const Workload& workload, const Timeline& timeline, const Ledger& ledger, const ProbeRange& range, std::uint64_t seed);

  bool exact() const { return packing_.exact; }
  std::uint32_t classes() const { return packing_.classes; }
  std::uint32_t runs() const { return static_cast<std::uint32_t>(sources_.size()); }

  // The data of one run more, for as long as this lives. every_second: of PackedSource.
  const GradientSource& next_run(std::optional<std::uint32_t> every_second = {});
  // Of snapshots whose values were wrong: kept whatever the first run shows of them. Not every element has every contribution in it, and where few elements tell,
  // other contributions may have the same sum.
  void expect_wrong(const std::vector<Mismatch>& values);
  // Of a run that is judged: keeps what its judge finds wrong. Of another: what was kept so far.
  std::unique_ptr<TraceSink> keeper(PassJudge* judge);

  // Whether the first run showed a gradient that a window found there, and there is a loss scale: what that left of an earlier window its own sum may hide.
  bool found_left_over() const { return found_left_over_; }

  // What these runs left of a snapshot, of which runs of one contribution each told the weights. Those that the sums contradict become open.
  BornOut bear_out(LedgerEntry& alone) const;

  // From now on weights are worked out of runs with every second window, where both of these showed a snapshot: sums of all are rounded.
  void take_windows_alone();

  // Works weights out of all runs so far. True: nothing stays open that another run could tell.
  bool decode();
  // Whether something stays that sums do not tell, and runs of one contribution each may.
  bool hides() const;
  // Whether that which is open has few elements for its contributions, so that it has too few equations.
  bool lacks_equations() const;

  struct Decoded {
    LedgerEntry entry;
    bool open = false;            // some weight of an element that is wrong
    bool missing = false;         // it was too large to keep, or to take apart
    bool hides = false;           // some weight beside those of others: TakingApart::hides()
    bool only_in_values = false;  // the first run shows nothing wrong
    std::size_t equations = 0;
  };
  std::vector<Decoded>& decoded() { return decoded_; }

 private:
  struct Kept {
    Role role = Role::scratch;
    std::uint32_t after = never;
    bool only_in_values = false;      // that judge found nothing wrong
    std::vector<ElementRange> wrong;  // what the judge of the first run found so
    std::vector<ElementRange> layout;
    std::vector<std::vector<double>> held, error;  // by run, then by element; in units of the true gradient. No error: none
  };
  struct Wrong {
    std::uint32_t step = 0, after = never;
  };
  class Keeper;

  Decoded take_apart(const SnapshotKey& key, const Kept& kept, std::vector<WeightPattern>& patterns) const;
  std::size_t add_runs(const Kept& kept, TakingApart& taking) const;
  void keep(const Observation& observation, Kept& kept);

  const Workload& workload_;
  const Timeline& timeline_;
  const Ledger& ledger_;
  Packing packing_;
  RowRounding rounding_;
  std::uint64_t seed_;
  std::vector<std::unique_ptr<GradientSource>> packed_, sources_;
  std::map<SnapshotKey, Wrong> wrong_values_;
  std::map<SnapshotKey, Kept> kept_;
  std::set<SnapshotKey> settled_;
  std::map<std::tuple<std::uint32_t, std::uint32_t, bool>, std::uint32_t> first_wrong_;  // event, by rank, window, and whether in the values alone
  std::uint64_t bytes_kept_ = 0;
  bool of_windows_ = false;  // the run at hand
  bool found_left_over_ = false;
  std::vector<Decoded> decoded_;
};

}  // namespace gradledger::ref
