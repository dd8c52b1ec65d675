#include "ref/naming/naming.h"

#include <map>
#include <tuple>

namespace gradledger::ref {

void Naming::list_applied() {
  for (const JudgedSnapshot& seen : evidence_.seen) {
    if (seen.role != Role::applied_gradient) continue;
    const auto decoded = ledger_.entries().find(seen.key);
    if (decoded != ledger_.entries().end() && !decoded->second.columns.empty()) {
      std::vector<Contribution> columns;
      for (const LedgerColumn& column : decoded->second.columns) columns.push_back(column.contribution);
      for (LedgerRow& row : ledger_.rows(decoded->second)) verdict_.applied.push_back({seen.step, seen.key.event, seen.key.rank, seen.key.buffer, columns, std::move(row)});
    } else {
      balanced_row(seen);
    }
  }
  std::stable_sort(verdict_.applied.begin(), verdict_.applied.end(),
                   [](const AppliedRow& a, const AppliedRow& b) { return std::tie(a.step, a.event, a.rank) < std::tie(b.step, b.event, b.rank); });
}

// The fingerprint was right in every element: the row is what it must be.
void Naming::balanced_row(const JudgedSnapshot& seen) {
  LedgerEntry entry;
  entry.key = seen.key;
  entry.role = seen.role;
  entry.step = seen.step;
  std::map<std::vector<double>, std::vector<ElementRange>> by_row;
  std::vector<Contribution> columns;
  for (std::uint32_t b = 0; b < timeline_.backwards.size(); ++b)
    for (std::uint32_t r = 0; r < workload_.world_size; ++r)
      if (timeline_.backwards[b].step == seen.step && timeline_.backwards[b].micro_batch[r] != no_contribution) columns.push_back(timeline_.contribution(b, r));
  for (const ElementRange& range : seen.layout) {
    std::vector<double> weights;
    for (std::uint32_t b = 0; b < timeline_.backwards.size(); ++b)
      for (std::uint32_t r = 0; r < workload_.world_size; ++r)
        if (timeline_.backwards[b].step == seen.step && timeline_.backwards[b].micro_batch[r] != no_contribution) weights.push_back(ledger_.expected(entry, b, r, range.parameter));
    by_row[std::move(weights)].push_back(range);
  }
  for (const auto& [weights, elements] : by_row)
    verdict_.applied.push_back({seen.step, seen.key.event, seen.key.rank, seen.key.buffer, columns, LedgerRow{elements, weights, weights}});
}

void Naming::weigh_coverage() {
  const Coverage rest = coverage_of(workload_, timeline_, evidence_.applied, evidence_.decided);
  verdict_.coverage.windows_closed = rest.windows_closed;
  verdict_.coverage.windows_judged = rest.windows_judged;
  verdict_.coverage.nothing = rest.nothing;
  verdict_.coverage.missing = std::move(evidence_.missing);
}

}  // namespace gradledger::ref
