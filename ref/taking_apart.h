// One snapshot, taken apart: which stretches of its elements have weights in common, and which weights.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <tuple>
#include <vector>

#include "ref/ledger.h"
#include "ref/row_solver.h"

namespace gradledger::ref {

// Weights that were told somewhere, as they would be on another rank or in another window.
struct WeightPattern {
  Role role = Role::scratch;
  std::optional<double> of_due{};
  // By windows ago, rank and micro-batch; and with whether the rank's own in place of the rank, where that is enough to say it.
  std::map<std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>, double> by_rank, by_side;
  bool sides = true;
  double least_share = 1;  // of what is due, but for nothing at all

  bool operator==(const WeightPattern&) const = default;
};

// Whether weights make the sums that runs of all contributions left.
enum class BornOut : std::uint8_t {
  no,
  as_weights,
  out_of_place,  // some elements hold those of others: what looks like a weight there is the quotient of two elements' numbers
};

// How many windows ago a contribution was due, seen from the entry's.
std::uint32_t windows_between(const LedgerEntry& entry, const LedgerColumn& column);

class TakingApart {
 public:
  // The entry has its layout and its columns; their runs are written here.
  TakingApart(const Workload& workload, const Timeline& timeline, const Ledger& ledger, const RowRounding& rounding, LedgerEntry& entry);

  // What one run left in the elements, in true units. Precondition: one number for each element of the layout. Call before run().
  void add(const GradientSource& source, const std::vector<double>& held, const std::vector<double>& error);
  // Where values leave several weights open, one pattern of these that explains them is taken.
  void set_patterns(const std::vector<WeightPattern>& patterns) { patterns_ = &patterns; }
  // Elements that a judge found wrong, by bounds that are closer than those of sums here: no weights that are due explain them.
  void set_wrong(const std::vector<ElementRange>& ranges);

  // False: it is too large.
  bool run();
  // In place of run(), of an entry with weights, which each contribution showed in a run of its own. Due ones of an element that is wrong become open.
  BornOut bear_out();
  bool open() const { return open_; }
  // Whether some weight that was told 0 may as well be what a loss scale leaves of the due one, or as small a share as a known pattern has: the others'
  // sums hide it.
  bool hides() const { return hides_; }
  // Of what was told without gaps, each once.
  std::vector<WeightPattern> patterns() const;

 private:
  // Element -> what became of it: an answer, or one of these.
  static constexpr int as_due = -1, unknown = -2, elsewhere = -3;
  using Elements = std::vector<std::uint32_t>;
  static constexpr std::size_t terms_max = std::size_t{1} << 25;  // gradients of a snapshot that are held at a time

  bool fill();
  void fill(const GradientSource& source, std::size_t run);
  void number_lost_ones(std::span<float> gradients) const;
  void explain(const Elements& elements);
  bool explain_together(const Elements& elements, std::optional<RowWeights>& with_gaps);
  void take(const Elements& elements, RowWeights answer);
  void try_answers(Elements& elements);
  std::optional<RowWeights> by_pattern(const std::vector<PackedRow>& rows) const;
  std::optional<RowWeights> weights_by(const WeightPattern& pattern, bool by_side) const;
  std::vector<PackedRow> rows_of(const Elements& elements) const;
  std::vector<Elements> parts(const Elements& elements) const;
  bool fits(const RowWeights& answer, std::uint32_t element) const;
  void open_where_wrong(const Elements& elements);
  void mark_misplaced(LedgerColumn& column, bool sums_tell) const;
  bool says_wrong_is_due(const RowWeights& answer, const Elements& elements) const;
  struct Part;
  struct Instead {
    std::vector<std::size_t> columns;  // of which nothing of the element's own is there
    std::uint32_t parameter = 0;       // whose element is there in its place
  };
  std::vector<Part> parts_of_due() const;
  double by_chance(const Part& part) const;
  enum class OutOfPlace : std::uint8_t { no, yes, untold };
  OutOfPlace out_of_place(const RowWeights& weights, std::uint32_t element) const;
  void look_elsewhere();
  void place(std::size_t column, const Instead& instead, CoefficientRun& run) const;
  void drop_lone_answers();
  bool rounded_of_others(std::uint32_t element, const std::map<std::pair<std::uint32_t, int>, std::uint32_t>& of_piece) const;
  void join_neighbours();
  void look_for_hidden();
  bool hides(const RowWeights& answer, std::uint32_t element, double share) const;
  bool hides_earlier(const RowWeights& answer, std::uint32_t element) const;
  std::vector<bool> dark_where_due(std::size_t column) const;
  void write();

  const Workload& workload_;
  const Timeline& timeline_;
  const Ledger& ledger_;
  LedgerEntry& entry_;
  const std::vector<WeightPattern>* patterns_ = nullptr;
  bool exact_;
  double unit_;
  double addition_;  // relative, what each sum rounds
  std::uint64_t numel_ = 0;
  std::vector<std::uint32_t> piece_of_;                   // by element
  std::vector<bool> wrong_;                               // likewise: set_wrong()
  std::vector<std::vector<double>> expected_;             // by piece and column
  std::vector<const GradientSource*> sources_;            // by run
  std::vector<const std::vector<double>*> held_, error_;  // likewise
  std::vector<float> gradients_;                          // by run, element and column
  std::vector<std::vector<PackedRow>> rows_;              // by run and element; null where something is not finite
  RowSolver solver_;
  std::vector<RowWeights> answers_;
  std::vector<int> became_;
  std::map<std::uint32_t, Instead> instead_;  // by element that became `elsewhere`
  std::uint32_t failures_ = 0;
  bool open_ = false, hides_ = false;
};

}  // namespace gradledger::ref
