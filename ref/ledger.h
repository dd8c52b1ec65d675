// The ledger: for chosen snapshots, the weight with which every contribution got into every element. Filled one contribution (column) at
// a time from passes in which that contribution alone is lit.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <numeric>
#include <optional>
#include <string_view>
#include <vector>

#include <boost/container/small_vector.hpp>

#include "ref/due_weights.h"
#include "ref/judge.h"
#include "ref/overflow.h"
#include "ref/probes.h"
#include "sim/trace/producer.h"

namespace gradledger::ref {

// Elements [begin, end) of a snapshot, counted through its parameter elements, with one coefficient.
struct CoefficientRun {
  std::uint64_t begin = 0, end = 0;
  double coefficient = 0;
  bool open = false;       // nothing tells it: what is due stands in its place
  bool misplaced = false;  // what is due of other elements is there too, beside this weight

  bool same_weight(const CoefficientRun& other) const { return coefficient == other.coefficient && open == other.open && misplaced == other.misplaced; }
};

struct LedgerColumn {
  std::uint32_t backward = 0;
  std::uint32_t rank = 0;
  Contribution contribution;
  std::uint32_t documented = 0;                            // its window by the documentation
  double own = 0, averaged = 0;                            // what it weighs by the contract, in its rank's own sum and in what is applied, before anybody set anything
  boost::container::small_vector<CoefficientRun, 1> runs;  // one most often, and columns by the million
  std::vector<Contribution> alike;                         // with the same data: what is wrong of this one may be wrong of them

  // Precondition: it begins where the last one ends.
  void append(const CoefficientRun& run) {
    if (!runs.empty() && runs.back().same_weight(run)) runs.back().end = run.end;
    else runs.push_back(run);
  }
};

struct LedgerEntry {
  SnapshotKey key;
  Role role = Role::scratch;
  std::uint32_t step = 0;
  std::uint32_t after = never;        // local sums: due are contributions after this reduction
  std::vector<ElementRange> layout;   // which elements the snapshot holds, in its order
  std::vector<LedgerColumn> columns;  // of the decoded contributions
  bool symbolic = false;              // of a run on weights, in which NaN is memory that nobody wrote
  bool out_of_place = false;          // of some elements it has quotients of two elements' numbers, where they hold those of others
};

// Why a row does not tell how much some contribution weighs.
enum class NotTold : std::uint8_t {
  rounding,      // it is there, and rounding may be as large as a part of it
  planted,       // so that the element is not finite
  open,          // several weights explain the values
  symbolic,      // the symbolic run's fractions do not hold it, or the value is no sum of contributions
  approximated,  // the documentation says so
  not_finite,    // a run of one contribution left infinities or NaN, and nothing is planted
};
inline constexpr std::size_t reasons_not_told = 6;
std::string_view name_of(NotTold reason);

struct InconclusiveRows {
  std::array<std::uint64_t, reasons_not_told> by_reason{};

  std::uint64_t total() const { return std::accumulate(by_reason.begin(), by_reason.end(), std::uint64_t{0}); }
};

// Elements of an entry that share a whole row of coefficients.
struct LedgerRow {
  std::vector<ElementRange> elements;
  std::vector<double> observed;  // by column
  std::vector<double> expected;
  std::vector<bool> open = {};       // by column: not told, and as expected
  std::vector<bool> misplaced = {};  // by column: they hold, beside what is observed, what is due of other elements
  std::optional<NotTold> inconclusive = {};

  bool misplaced_at(std::size_t column) const { return column < misplaced.size() && misplaced[column]; }
  bool open_at(std::size_t column) const { return column < open.size() && open[column]; }
  bool any_open() const { return std::find(open.begin(), open.end(), true) != open.end(); }
  bool any_misplaced() const { return std::find(misplaced.begin(), misplaced.end(), true) != misplaced.end(); }
  bool balances() const { return observed == expected && !any_misplaced(); }
  // Nothing of this contribution is due, and nothing is there.
  bool dark(std::size_t column) const { return observed[column] == 0 && expected[column] == 0 && !misplaced_at(column); }
};

class Ledger {
 public:
  Ledger(const Workload& workload, const Timeline& timeline, const ProbeRange& range);

  // Our own executor fills memory that nobody wrote with NaN: there a NaN is a finding. What a real framework leaves there is any number.
  void fills_unwritten(bool does) { fills_unwritten_ = does; }

  // after: of a local sum, the reduction after which its contributions are due.
  void want(const SnapshotKey& key, std::uint32_t after = never) { wanted_[key].after = after; }
  bool wants(const SnapshotKey& key) const { return wanted_.contains(key); }
  const std::map<SnapshotKey, LedgerEntry>& entries() const { return wanted_; }

  // Runs one pass for each of the contributions. What an entry has of a contribution already stays. keeps_alive: an element is shared by all contributions,
  // for optimizers that raise where a window has none; its weights are taken to be its neighbour's.
  void decode(Producer& producer, const Schedule& schedule, const std::vector<std::pair<std::uint32_t, std::uint32_t>>& backward_and_rank, bool keeps_alive = false);

  // Takes in an entry that was decoded in another way, from values.
  void put(LedgerEntry entry) { wanted_.insert_or_assign(entry.key, std::move(entry)); }

  void forget(const SnapshotKey& key) { wanted_.erase(key); }

  // An entry of a snapshot, with a column for every contribution that a backward before it brought, and no weights yet.
  LedgerEntry empty_entry(const SnapshotKey& key, Role role, std::uint32_t after) const;

  // Relative rounding of a lone contribution on its way; 0 where everything is exact. From tolerance_max on a weight means nothing.
  static constexpr double tolerance_max = 0.25;
  double tolerance() const;
  double lone_rounding() const;  // likewise, in the formats that the contract has
  // Of two weights that are one.
  double rounding() const;
  // A coefficient within the tolerance of a simple multiple of a right weight is that multiple; in fp64, the simplest quotient that it can be.
  double snapped(double coefficient, const LedgerColumn& column) const;
  bool wide() const { return range_.wide; }
  std::vector<LedgerRow> rows(const LedgerEntry& entry) const;
  // By parameter: the first of which the same is due, whatever the snapshot.
  const std::vector<std::uint32_t>& alike() const { return alike_; }
  // Whether the documentation has an approximation in a snapshot of a parameter, and not the weights that are due.
  bool approximated(const LedgerEntry& entry, std::uint32_t parameter) const {
    const auto& [event, at_end, rank, buffer] = entry.key;
    return timeline_.approximates_weights(parameter, event, at_end) || (!entry.symbolic && timeline_.approximates_values(parameter, event, at_end));
  }
  // What a contribution must weigh in an element of a parameter, by the entry's role.
  DueWeights due(const LedgerEntry& entry, std::uint32_t parameter) const { return {workload_, timeline_, skipped_, entry, parameter}; }
  double expected(const LedgerEntry& entry, std::uint32_t backward, std::uint32_t rank, std::uint32_t parameter) const { return due(entry, parameter).of(backward, rank); }

 private:
  class Column;
  class Rows;

  std::optional<SingleSource::Element> shared_element() const;
  void take_approximation(const LedgerEntry& entry, LedgerRow& row) const;

  bool same(double a, double b) const { return a == b || std::abs(a - b) <= 2 * rounding() * std::abs(a); }

  const Workload& workload_;
  const Timeline& timeline_;
  ProbeRange range_;
  bool fills_unwritten_ = true;
  std::vector<bool> skipped_;         // by window: nothing of it is due in an applied gradient
  std::vector<std::uint32_t> alike_;  // by parameter: the first of which the same is due
  std::vector<double> factors_;
  std::map<SnapshotKey, LedgerEntry> wanted_;
};

}  // namespace gradledger::ref
