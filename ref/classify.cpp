#include "ref/classify.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <set>

#include "sim/base/rational.h"

namespace gradledger::ref {
namespace {

using enum FindingClass;

bool whole(double x) { return std::isfinite(x) && x == std::round(x); }

// Weights are quotients of whole numbers in fp64, and so are their ratios: up to a few roundings.
bool near(double ratio, double other) { return std::abs(ratio - other) <= 16 * std::numeric_limits<double>::epsilon() * std::abs(other); }

// A whole number, or one over one.
double simplest(double ratio) {
  if (near(ratio, std::round(ratio))) return std::round(ratio);
  const double inverse = 1.0 / std::round(1.0 / ratio);
  return std::isfinite(inverse) && near(ratio, inverse) ? inverse : ratio;
}

// What the ledger took for a quotient of two whole numbers is the fp64 value next to it.
bool quotient_of_whole_numbers(double weight) {
  constexpr std::int64_t terms_max = 1 << 18;
  return simplest_within(weight, 2 * std::numeric_limits<double>::epsilon() * std::abs(weight), terms_max).has_value();
}

}  // namespace

bool short_dyadic(double ratio) {
  int exponent;
  const double fraction = std::frexp(ratio, &exponent);
  return whole(std::ldexp(fraction, 20));
}

namespace {

class Diagnostician {
 public:
  Diagnostician(const LedgerRow& row, const std::vector<LedgerColumn>& columns, const RowContext& context) : row_(row), columns_(columns), context_(context) {}

  std::vector<Diagnosis> run() {
    for (std::size_t k = 0; k < columns_.size(); ++k)
      if (row_.observed[k] != row_.expected[k]) wrong_.push_back(k);
    if (wrong_.empty()) return {};
    if (!context_.one_factor && !context_.places_told && misplaced()) return std::move(out_);
    if (another_group()) return std::move(out_);
    stale();
    if (!common_factor() && !another_normalisation() && !unshared() && !part_of_the_group()) {
      private_micro_batches();
      lost();
      counted_again();
    }
    rest();
    return std::move(out_);
  }

 private:
  const Contribution& contribution(std::size_t k) const { return columns_[k].contribution; }
  std::uint32_t window(std::size_t k) const { return context_.documented ? columns_[k].documented : contribution(k).step; }
  bool in_window(std::size_t k) const { return window(k) == context_.step; }
  bool told(std::size_t k) const { return row_.open.empty() || !row_.open[k]; }
  Miscounted miscounted(std::size_t k) const { return {contribution(k), row_.expected[k], row_.observed[k]}; }

  // Takes the columns that fit out of `wrong_` and names them.
  template <class Fits>
  bool take(FindingClass finding, Fits&& fits) {
    Diagnosis diagnosis{finding, {}};
    std::erase_if(wrong_, [&](std::size_t k) {
      if (!fits(k)) return false;
      diagnosis.contributions.push_back(miscounted(k));
      return true;
    });
    if (diagnosis.contributions.empty()) return false;
    out_.push_back(std::move(diagnosis));
    return true;
  }

  bool misplaced() {
    const bool out_of_place = std::any_of(wrong_.begin(), wrong_.end(), [&](std::size_t k) {
      const double weight = context_.local ? columns_[k].own : columns_[k].averaged;
      if (context_.wide)
        return row_.observed[k] != 0 && std::isfinite(row_.observed[k]) && !quotient_of_whole_numbers(row_.observed[k]) &&
               (weight == 0 || !quotient_of_whole_numbers(row_.observed[k] / weight));
      const double ratio = simplest(row_.observed[k] / weight);
      if (!std::isfinite(ratio)) return false;
      if (context_.tolerance == 0) return !short_dyadic(ratio);
      return !whole(ratio) && !whole(1.0 / ratio) && ratio_of_probes(ratio, context_.tolerance);
    });
    return out_of_place && take(misplaced_shard, [](std::size_t) { return true; });
  }

  void stale() {
    take(stale_gradient, [&](std::size_t k) { return row_.expected[k] == 0 && (window(k) < context_.step || (in_window(k) && !foreign(k))); });
  }
  bool foreign(std::size_t k) const { return context_.local && contribution(k).rank != context_.rank; }

  // Contributions of the window from ranks that are not meant to average with this one.
  bool another_group() {
    const auto outside = [&](std::size_t k) {
      return in_window(k) && !context_.local && !context_.documented && columns_[k].averaged == 0 && columns_[k].own != 0 && row_.expected[k] == 0;
    };
    if (std::none_of(wrong_.begin(), wrong_.end(), [&](std::size_t k) { return outside(k) && row_.observed[k] != 0; })) return false;
    return take(wrong_group, [&](std::size_t k) { return in_window(k); });
  }

  // Of ranks that each have a part of the gradient one arrives, as it is before they are added up, and the others do not.
  bool unshared() {
    if (!context_.share || context_.local) return false;
    std::map<std::uint32_t, std::set<std::uint32_t>> here, due;  // ranks, by the first that they share with
    for (std::size_t k = 0; k < columns_.size(); ++k) {
      if (!in_window(k) || row_.expected[k] == 0 || !told(k)) continue;
      const std::uint32_t rank = contribution(k).rank, first = context_.share->first[rank];
      due[first].insert(rank);
      if (row_.observed[k] == 0) continue;
      if (!near(row_.observed[k] / row_.expected[k], value_of(context_.share->divisor))) return false;
      here[first].insert(rank);
    }
    const bool one_of_several = std::all_of(due.begin(), due.end(), [&](const auto& set) { return set.second.size() > 1 && here[set.first].size() == 1; });
    if (!one_of_several || !here[context_.share->first[context_.rank]].contains(context_.rank)) return false;
    return take(missing_reduction, [&](std::size_t k) { return in_window(k) && row_.expected[k] != 0; });
  }

  // Every micro-batch arrives from some of the ranks, two at least, with one factor, and from the others not at all.
  bool part_of_the_group() {
    if (context_.local || context_.documented || context_.world < 3) return false;
    std::vector<std::optional<bool>> averaged(context_.world);  // by rank
    std::optional<double> factor;
    for (std::size_t k = 0; k < columns_.size(); ++k) {
      if (!in_window(k) || row_.expected[k] == 0 || !told(k)) continue;
      const bool here = row_.observed[k] != 0;
      std::optional<bool>& known = averaged[contribution(k).rank];
      if (known.value_or(here) != here) return false;
      known = here;
      if (!here) continue;
      const double ratio = row_.observed[k] / row_.expected[k];
      if (factor && !near(ratio, *factor)) return false;
      factor = ratio;
    }
    const auto in = std::count(averaged.begin(), averaged.end(), true), all = in + std::count(averaged.begin(), averaged.end(), false);
    // As much from each as an average over fewer ranks leaves.
    if (in < 2 || in == all || averaged[context_.rank] != true || !near(*factor, static_cast<double>(all) / static_cast<double>(in))) return false;
    return take(wrong_group, [&](std::size_t k) { return in_window(k) && row_.expected[k] != 0; });
  }

  // Weights that differ within the window as they do in another way to normalise.
  bool another_normalisation() {
    for (const Normalisation& candidate : context_.normalisations) {
      std::optional<double> factor;
      bool fits = true;
      for (std::size_t k = 0; k < columns_.size() && fits; ++k) {
        if (!in_window(k) || row_.expected[k] == 0 || !told(k)) continue;
        const double ratio = row_.observed[k] / candidate.weights[k];
        fits = candidate.weights[k] != 0 && row_.observed[k] != 0 && (!factor || near(ratio, *factor));
        if (!factor) factor = ratio;
      }
      if (!fits || !factor) continue;
      if (!take(wrong_scale, [&](std::size_t k) { return in_window(k) && row_.expected[k] != 0; })) return false;
      out_.back().as_if = candidate.name;
      return true;
    }
    return false;
  }

  // Every contribution of the window off by one and the same factor.
  bool common_factor() {
    std::optional<double> factor;
    for (std::size_t k = 0; k < columns_.size(); ++k) {
      if (!in_window(k) || row_.expected[k] == 0 || !told(k)) continue;
      const double ratio = simplest(row_.observed[k] / row_.expected[k]);
      if (factor && !near(ratio, *factor)) return false;
      if (!factor) factor = ratio;
    }
    if (!factor || *factor == 0 || *factor == 1) return false;
    // A lone contribution in a world of one cannot tell scale from count; a scale is the simpler reading.
    return take(wrong_scale, [&](std::size_t k) { return in_window(k) && row_.expected[k] != 0; });
  }

  // Micro-batches whose own contribution has the full weight while every peer's is absent: of the own one that must be told, and of some peer where there are any.
  void private_micro_batches() {
    if (context_.local || context_.world == 1) return;
    struct Weights {
      bool fit = true, peers = false, own_told = false, peers_told = false;
    };
    std::map<std::uint32_t, Weights> all;
    auto at = all.end();  // of the column before
    for (std::size_t k = 0; k < columns_.size(); ++k) {
      if (!in_window(k) || row_.expected[k] == 0) continue;
      if (at == all.end() || at->first != contribution(k).micro_batch) at = all.try_emplace(contribution(k).micro_batch).first;
      Weights& of = at->second;
      const bool own = contribution(k).rank == context_.rank;
      of.peers = of.peers || !own;
      if (!told(k)) continue;
      (own ? of.own_told : of.peers_told) = true;
      // In terms of what is due: a user may have multiplied it.
      const bool as_private = own ? simplest(row_.observed[k] / row_.expected[k]) == simplest(context_.average_divisor) : row_.observed[k] == 0.0;
      of.fit = of.fit && as_private;
    }
    std::erase_if(all, [](const auto& of) { return !of.second.own_told && !of.second.peers_told; });
    // Where the loop weighs contributions itself, one that no peer has may as well weigh more.
    const bool peers_needed = !context_.normalisations.empty();
    std::set<std::uint32_t> alone;
    for (const auto& [micro_batch, of] : all)
      if (of.fit && of.own_told && (of.peers ? of.peers_told : !peers_needed)) alone.insert(micro_batch);
    if (alone.empty()) return;
    const bool at_boundary = std::includes(context_.boundary.begin(), context_.boundary.end(), alone.begin(), alone.end());
    // With one micro-batch a leak and a missing reduction weigh the same; that a collective ran tells them apart.
    const bool leak = at_boundary && (alone.size() < all.size() || (all.size() == 1 && context_.reduced));
    take(leak ? boundary_leak : missing_reduction, [&](std::size_t k) { return in_window(k) && alone.contains(contribution(k).micro_batch); });
  }

  void lost() {
    take(context_.host_accumulator ? offload_loss : discarded_gradient, [&](std::size_t k) { return in_window(k) && row_.expected[k] != 0 && row_.observed[k] == 0; });
  }

  void counted_again() {
    const auto multiple = [&](std::size_t k) {
      if (!in_window(k)) return false;
      const double ratio = row_.expected[k] == 0 ? 2 : simplest(row_.observed[k] / row_.expected[k]);
      return whole(ratio) && ratio > 1;
    };
    // Where a loop weighs contributions itself, whole factors beside others are weights too.
    if (!context_.normalisations.empty() && !std::all_of(wrong_.begin(), wrong_.end(), multiple)) return;
    take(duplicated_gradient, multiple);
  }

  void rest() {
    take(wrong_scale, [](std::size_t) { return true; });
  }

  const LedgerRow& row_;
  const std::vector<LedgerColumn>& columns_;
  const RowContext& context_;
  std::vector<std::size_t> wrong_;
  std::vector<Diagnosis> out_;
};

}  // namespace

bool off_by_one_factor(const std::vector<LedgerRow>& rows, const std::vector<LedgerColumn>& columns, std::uint32_t step) {
  std::optional<double> factor;
  std::uint64_t elements = 0;
  for (const LedgerRow& row : rows) {
    for (const ElementRange& range : row.elements) elements += range.end - range.begin;
    for (std::size_t k = 0; k < columns.size(); ++k) {
      if (columns[k].contribution.step != step || row.expected[k] == 0) continue;
      const double ratio = simplest(row.observed[k] / row.expected[k]);
      if (factor && ratio != *factor) return false;
      factor = ratio;
    }
  }
  return elements > 1 && factor && *factor != 0 && *factor != 1;
}

std::vector<Diagnosis> diagnose(const LedgerRow& row, const std::vector<LedgerColumn>& columns, const RowContext& context) { return Diagnostician(row, columns, context).run(); }

}  // namespace gradledger::ref
