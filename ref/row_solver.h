// Weights that elements have in common, from what they hold: each element of each run is an equation, a sum of known gradients times weights.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace gradledger::ref {

// One contribution, as a snapshot may have it.
struct Term {
  double due = 0;                // what it must weigh here
  double own = 0, averaged = 0;  // what contributions like it weigh in some buffer
  std::uint32_t windows_ago = 0;
  bool own_rank = false, boundary = false;
  std::uint32_t micro_batch = 0;
  // Of an earlier window: what divisions by loss scales have left of it since, where a loop's scaler divides what is there.
  double left = 1;
};

// Weights of the window's terms up to a factor, as loops are known to have them.
using WeightShape = std::vector<double>;

// One element in one run.
struct PackedRow {
  const float* gradients = nullptr;  // by term
  double held = 0;
  double error = 0;                   // that what is held may have for reasons of its own
  double due = 0, due_magnitude = 0;  // the sum of what must be in it, and of its size
};

struct RowWeights {
  std::vector<double> value;       // by term
  std::vector<bool> open;          // by term: the rows do not tell it
  std::vector<bool> dark;          // by term: no row has it
  std::optional<double> of_due{};  // then the first two are empty: every term has this share of what is due of it, whatever that is
  bool odd_share = false;          // a share that is no quotient of small numbers
  bool near_others = false;        // a share whose sums are rounded: those of other weights may be as near

  bool any_open() const;
};

struct RowRounding {
  bool exact = false;   // whole numbers of up to `precision` bits are not rounded
  int precision = 8;    // bits of the narrowest format on the way
  double unit = 1;      // gradients are whole numbers of it
  double lone = 0;      // relative, of a term on its way
  double addition = 0;  // likewise, of each addition
};

class RowSolver {
 public:
  RowSolver(std::vector<Term> terms, std::vector<WeightShape> shapes, const RowRounding& rounding) : terms_(std::move(terms)), shapes_(std::move(shapes)), rounding_(rounding) {}

  // Weights that explain every row, or none. Those of earlier windows are 0 wherever the rows can do without them.
  std::optional<RowWeights> solve(const std::vector<PackedRow>& rows) const;

  // Whether weights leave what the row holds. A row with an open term is not told wrong.
  bool explains(const RowWeights& weights, const PackedRow& row, bool rounded = false) const;
  // What divisions by loss scales have left of a term: Term::left.
  double left(std::size_t term) const { return terms_[term].left; }
  double unit() const { return rounding_.unit; }
  // How many bits of evidence a row is for weights that explain it.
  double bits(const PackedRow& row) const;

 private:
  // Terms that are taken to have one weight.
  using Group = std::vector<std::size_t>;
  using Groups = std::vector<Group>;
  static constexpr std::size_t unknowns_max = 96;
  static constexpr double bits_needed = 16;  // to spare: of so many answers that chance could have left, it has left one
  enum class Kind : std::uint8_t { plain, odd, open };
  struct Snapped {
    double weight = 0;
    Kind kind = Kind::open;
  };

  std::size_t window_terms() const;
  // What terms of the window have in common, or those of earlier ones.
  enum class Alike : std::uint8_t { none, micro_batch, boundary, first };
  Groups groups(Alike window, std::uint32_t windows_ago, bool earlier_merged) const;
  Groups window() const { return groups(Alike::none, 0, false); }
  std::optional<RowWeights> of_a_shape(const std::vector<PackedRow>& rows) const;
  std::optional<RowWeights> share_of_due(const std::vector<PackedRow>& rows, bool rounded) const;
  // spare: rows beyond the unknowns that there must be.
  std::optional<RowWeights> fit(const Groups& groups, const std::vector<PackedRow>& rows, bool rounded, std::size_t spare = 0) const;
  std::vector<PackedRow> rows_to_solve(const std::vector<PackedRow>& rows, std::size_t unknowns, bool exact) const;
  std::vector<Snapped> solved(const Groups& groups, const std::vector<PackedRow>& rows, bool exact) const;
  std::vector<Snapped> unrounded(const Groups& groups, const std::vector<PackedRow>& rows, const std::vector<double>& weights) const;
  bool borne_out(const std::vector<Snapped>& found, const Groups& groups, const std::vector<PackedRow>& rows, bool exact) const;
  double bits_beyond(const std::vector<Snapped>& found, const Groups& groups, const std::vector<PackedRow>& rows) const;
  bool has_rows_to_spare(const Groups& groups, const std::vector<PackedRow>& rows, std::size_t group) const;
  std::optional<RowWeights> enumerate(const Groups& groups, const std::vector<PackedRow>& rows) const;
  double bits_to_spare(const Groups& groups, const std::vector<PackedRow>& rows) const;
  std::vector<bool> told_by_bits(const Groups& groups, const std::vector<PackedRow>& rows) const;
  class Choices;
  // What weights make of a row, term by term.
  struct Sum {
    double value = 0, magnitude = 0, least = HUGE_VAL, terms = 0;
    void add(double weight, float gradient);
  };
  bool leaves(const Sum& sum, const PackedRow& row, bool rounded) const;
  Snapped snapped(double weight, double error, const Group& group) const;
  std::vector<double> plain_weights(const Group& group) const;
  bool is_left(double weight, const Group& group) const;
  double to_next_plain(double weight, const Group& group) const;
  bool any_divided() const;
  double likely(const Group& group) const;
  std::vector<bool> dark_in(const std::vector<PackedRow>& rows) const;
  bool surely_exact(const PackedRow& row) const;
  double lit(const PackedRow& row, const Group& group) const;
  double off_of_share(double share, const PackedRow& row, bool rounded) const;
  double bits(const PackedRow& row, double off) const;
  double bound(double magnitude, double terms, double least, bool rounded) const;
  RowWeights spread(const Groups& groups, const std::vector<Snapped>& of_groups) const;

  std::vector<Term> terms_;
  std::vector<WeightShape> shapes_;
  RowRounding rounding_;
};

}  // namespace gradledger::ref
