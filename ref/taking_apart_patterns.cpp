// Weights that were told somewhere, put to another snapshot's sums.
#include <algorithm>
#include <cmath>

#include "ref/taking_apart.h"

namespace gradledger::ref {

// The one pattern that explains all rows. Several that do: none.
std::optional<RowWeights> TakingApart::by_pattern(const std::vector<PackedRow>& rows) const {
  std::optional<RowWeights> out;
  double evidence = 0;
  for (const PackedRow& row : rows) evidence += solver_.bits(row);
  constexpr double bits_needed = 4;
  if (!patterns_ || evidence < bits_needed) return {};
  for (const WeightPattern& pattern : *patterns_)
    for (const bool by_side : {false, true}) {
      const auto weights = weights_by(pattern, by_side);
      if (!weights || !std::all_of(rows.begin(), rows.end(), [&](const PackedRow& row) { return solver_.explains(*weights, row); })) continue;
      if (out && (out->value != weights->value || out->of_due != weights->of_due)) return {};
      out = weights;
    }
  return out;
}

std::optional<RowWeights> TakingApart::weights_by(const WeightPattern& pattern, bool by_side) const {
  if (pattern.role != entry_.role) return {};
  RowWeights out;
  out.of_due = pattern.of_due;
  if (out.of_due) return out;
  if (by_side && !pattern.sides) return {};
  const auto& weights = by_side ? pattern.by_side : pattern.by_rank;
  for (const LedgerColumn& column : entry_.columns) {
    const std::uint32_t who = by_side ? column.rank == entry_.key.rank : column.rank;
    const auto weight = weights.find({windows_between(entry_, column), who, column.contribution.micro_batch});
    if (weight == weights.end() && windows_between(entry_, column) == 0) return {};
    out.value.push_back(weight == weights.end() ? 0 : weight->second);
    out.open.push_back(false);
  }
  return out;
}

std::vector<WeightPattern> TakingApart::patterns() const {
  std::vector<WeightPattern> out;
  for (std::size_t a = 0; a < answers_.size(); ++a) {
    const RowWeights& answer = answers_[a];
    const bool dark = std::find(answer.dark.begin(), answer.dark.end(), true) != answer.dark.end();
    if (answer.any_open() || (dark && !answer.of_due) || std::find(became_.begin(), became_.end(), static_cast<int>(a)) == became_.end()) continue;
    WeightPattern pattern;
    pattern.role = entry_.role;
    pattern.of_due = answer.of_due;
    if (answer.of_due && *answer.of_due != 0) pattern.least_share = std::min(1.0, std::abs(*answer.of_due));
    for (std::size_t k = 0; k < entry_.columns.size() && !answer.of_due; ++k) {
      const LedgerColumn& column = entry_.columns[k];
      const std::uint32_t ago = windows_between(entry_, column), own = column.rank == entry_.key.rank;
      pattern.by_rank[{ago, column.rank, column.contribution.micro_batch}] = answer.value[k];
      const auto [at, fresh] = pattern.by_side.try_emplace({ago, own, column.contribution.micro_batch}, answer.value[k]);
      pattern.sides = pattern.sides && (fresh || at->second == answer.value[k]);
      const double due = ledger_.expected(entry_, column.backward, column.rank, entry_.layout.front().parameter);
      if (due != 0 && answer.value[k] != 0) pattern.least_share = std::min(pattern.least_share, std::abs(answer.value[k] / due));
    }
    if (std::find(out.begin(), out.end(), pattern) == out.end()) out.push_back(std::move(pattern));
  }
  return out;
}

}  // namespace gradledger::ref
