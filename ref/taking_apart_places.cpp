// Elements that hold what is due of other elements.
#include <algorithm>
#include <cmath>
#include <map>

#include "ref/taking_apart.h"

namespace gradledger::ref {
namespace {

// A planted NaN has no place in an order.
bool all_finite(const std::vector<double>& values) {
  return std::all_of(values.begin(), values.end(), [](double value) { return std::isfinite(value); });
}

}  // namespace

// What is due of some contributions, by element of all parameters and by run.
struct TakingApart::Part {
  std::vector<std::size_t> columns;
  std::vector<std::vector<double>> due;
  std::map<std::vector<double>, std::uint32_t> known;  // to the first parameter that it is due in
};

// All together, of each rank, and each alone.
std::vector<TakingApart::Part> TakingApart::parts_of_due() const {
  std::vector<Part> parts(1 + workload_.world_size);
  for (std::size_t k = 0; k < entry_.columns.size(); ++k) {
    const bool due = std::any_of(expected_.begin(), expected_.end(), [&](const std::vector<double>& piece) { return piece[k] != 0; });
    if (!due) continue;
    parts[0].columns.push_back(k);
    parts[1 + entry_.columns[k].rank].columns.push_back(k);
    parts.push_back({{k}, {}, {}});
  }
  return parts;
}

// Elements that hold what is due of another one of any parameter, in every run: all of it, or the part of some contributions.
void TakingApart::look_elsewhere() {
  std::size_t total = 0;
  std::vector<std::size_t> first;  // element of each parameter
  for (const Parameter& p : workload_.parameters) {
    first.push_back(total);
    total += p.numel;
  }
  std::vector<Part> parts = parts_of_due();
  if (!exact_ || total * rows_.size() * parts.size() > terms_max) return;
  std::vector<double> gradient;
  for (Part& part : parts) {
    part.due.assign(total, std::vector<double>(rows_.size(), 0.0));
    for (const std::size_t k : part.columns)
      for (std::uint32_t p = 0; p < workload_.parameters.size(); ++p) {
        const LedgerColumn& column = entry_.columns[k];
        const double weight = ledger_.expected(entry_, column.backward, column.rank, p);
        gradient.resize(workload_.parameters[p].numel);
        for (std::size_t run = 0; weight != 0 && run < rows_.size(); ++run) {
          sources_[run]->gradient(column.backward, column.rank, p, 0, gradient);
          for (std::size_t i = 0; i < gradient.size(); ++i) part.due[first[p] + i][run] += weight * gradient[i];
        }
      }
    for (std::uint32_t p = 0; p < workload_.parameters.size(); ++p)
      for (std::size_t i = 0; i < workload_.parameters[p].numel; ++i)
        if (all_finite(part.due[first[p] + i])) part.known.try_emplace(part.due[first[p] + i], p);
  }
  // Only parts that so many elements would hardly have by chance.
  constexpr double chance_max = 1.0 / 64;
  std::vector<const Part*> telling;
  for (const Part& part : parts)
    if (!part.columns.empty() && by_chance(part) * static_cast<double>(parts.size()) < chance_max) telling.push_back(&part);
  std::uint32_t e = 0;
  for (const ElementRange& piece : entry_.layout)
    for (std::uint64_t i = piece.begin; i < piece.end; ++i, ++e) {
      for (const Part* part : telling) {
        if (became_[e] != unknown) break;
        std::vector<double> instead;  // of what is due of this part here
        for (std::size_t run = 0; run < rows_.size(); ++run)
          instead.push_back(rows_[run][e].held - parts[0].due[first[piece.parameter] + i][run] + part->due[first[piece.parameter] + i][run]);
        if (!all_finite(instead)) continue;
        const auto of = part->known.find(instead);
        if (of == part->known.end() || std::none_of(instead.begin(), instead.end(), [](double h) { return h != 0; })) continue;
        became_[e] = elsewhere;
        instead_.emplace(e, Instead{part->columns, of->second});
      }
    }
}

// How likely it is that numbers of the part's size are those of one of its elements.
double TakingApart::by_chance(const Part& part) const {
  double quantum = HUGE_VAL;
  for (const std::size_t k : part.columns)
    for (const std::vector<double>& piece : expected_)
      if (piece[k] != 0) quantum = std::min(quantum, std::abs(piece[k]) * unit_);
  double ways = 1;
  for (std::size_t run = 0; run < rows_.size(); ++run) {
    double least = HUGE_VAL, most = -HUGE_VAL;
    for (const std::vector<double>& due : part.due)
      if (std::isfinite(due[run])) {  // not what is planted
        least = std::min(least, due[run]);
        most = std::max(most, due[run]);
      }
    if (least < most) ways *= 1 + (most - least) / quantum / 2;  // about: sums lie closer to the middle
  }
  return static_cast<double>(part.known.size()) / ways;
}

}  // namespace gradledger::ref
