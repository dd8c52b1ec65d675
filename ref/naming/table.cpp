#include "ref/naming/naming.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace gradledger::ref {

void Naming::list_applied() {
  std::vector<const JudgedSnapshot*> applied;
  for (const JudgedSnapshot& seen : evidence_.seen)
    if (seen.role == Role::applied_gradient) applied.push_back(&seen);
  const auto place = [](const JudgedSnapshot* s) { return std::tie(s->step, s->key.event, s->key.rank); };
  std::stable_sort(applied.begin(), applied.end(), [&](const auto* a, const auto* b) { return place(a) < place(b); });
  std::uint64_t listed = 0;  // weights that are as due
  for (const JudgedSnapshot* of : applied) {
    const JudgedSnapshot& seen = *of;
    if (seen.layout.empty()) continue;  // a share of nothing but padding
    const auto decoded = ledger_.entries().find(seen.key);
    if (decoded != ledger_.entries().end() && !decoded->second.columns.empty()) {
      std::vector<Contribution> columns;
      for (const LedgerColumn& column : decoded->second.columns) columns.push_back(column.contribution);
      for (LedgerRow& row : ledger_.rows(decoded->second)) verdict_.applied.push_back({seen.step, seen.key.event, seen.key.rank, seen.key.buffer, columns, std::move(row)});
    } else if (listed > cells_max_ || evidence_.not_taken_apart.contains(seen.key)) {
      ++verdict_.not_listed;
      continue;
    } else {
      balanced_row(seen);
      listed += std::uint64_t{verdict_.applied.back().columns.size()} * seen.layout.size();
    }
  }
}

// The fingerprint was right in every element: the row is what it must be.
void Naming::balanced_row(const JudgedSnapshot& seen) {
  LedgerEntry entry;
  entry.key = seen.key;
  entry.role = seen.role;
  entry.step = seen.step;
  // The same is due on all ranks that average together.
  const bool known = due_ && timeline_.contract.average_group.empty() && due_->step == seen.step && due_->event == seen.key.event && due_->at_end == seen.key.at_end;
  if (!known) due_ = {seen.step, seen.key.event, seen.key.at_end, {}, {}};
  const auto each_contribution = [&](auto&& use) {
    for (const std::uint32_t b : timeline_.backwards_of(seen.step, Layer::meant))
      for (std::uint32_t r = 0; r < workload_.world_size; ++r)
        if (timeline_.backwards[b].micro_batch[r] != no_contribution) use(b, r);
  };
  if (!known) each_contribution([&](std::uint32_t b, std::uint32_t r) { due_->columns.push_back(timeline_.contribution(b, r)); });
  // Nobody looked at what is an approximation: its row is what is due, and not told. A run on weights looks at that too.
  std::map<std::pair<std::vector<double>, bool>, std::vector<ElementRange>> by_row;
  std::map<std::pair<std::uint32_t, bool>, std::vector<ElementRange>*> row_of;  // by the first parameter of which the same is due
  for (const ElementRange& range : seen.layout) {
    const std::uint32_t alike = ledger_.alike()[range.parameter];
    const bool approximated = !verdict_.weights && ledger_.approximated(entry, range.parameter);
    std::vector<ElementRange>*& row = row_of[{alike, approximated}];
    if (!row) {
      const auto [weights, fresh] = due_->weights.try_emplace(alike);
      DueWeights due = ledger_.due(entry, range.parameter);
      if (fresh) each_contribution([&](std::uint32_t b, std::uint32_t r) { weights->second.push_back(due.of(b, r)); });
      row = &by_row[{weights->second, approximated}];
    }
    row->push_back(range);
  }
  for (const auto& [known_row, elements] : by_row) {
    const auto& [weights, approximated] = known_row;
    LedgerRow row{elements, weights, weights};
    if (approximated) {
      row.open.assign(weights.size(), true);
      row.inconclusive = NotTold::approximated;
      ++verdict_.inconclusive_rows.by_reason[static_cast<std::size_t>(NotTold::approximated)];
    }
    verdict_.applied.push_back({seen.step, seen.key.event, seen.key.rank, seen.key.buffer, due_->columns, std::move(row)});
  }
}

void Naming::weigh_coverage() {
  const Coverage rest = coverage_of(workload_, timeline_, evidence_.applied, evidence_.decided);
  verdict_.coverage.windows_closed = rest.windows_closed;
  verdict_.coverage.windows_judged = rest.windows_judged;
  verdict_.coverage.nothing = rest.nothing;
  verdict_.coverage.missing = std::move(evidence_.missing);
  for (std::string& sentence : evidence_.norms.sentences()) verdict_.left_out.push_back(std::move(sentence));
}

}  // namespace gradledger::ref
