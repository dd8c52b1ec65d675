#include "ref/facts.h"

#include <algorithm>

#include <fmt/format.h>

#include "ref/dtype_facts.h"

namespace gradledger::ref {

FactsSink::FactsSink(const Scenario& scenario, const Timeline& timeline)
    : scenario_(scenario), timeline_(timeline), met_(scenario.expect.values.size()), how_not_(scenario.expect.values.size()), others_(scenario.expect.values.size()) {}

// Whole buffers are compared, padding included where the values go that far.
void FactsSink::observe(const Observation& o) {
  for (std::size_t i = 0; i < met_.size(); ++i) {
    const ExpectedValues& expected = scenario_.expect.values[i];
    if (!o.at_end || expected.event != o.event || expected.rank != o.rank) continue;
    if (expected.buffer != o.buffer) {
      others_[i] += (others_[i].empty() ? "" : ", ") + std::string(o.buffer);
      continue;
    }
    std::vector<double> values;
    for (const ObservedPiece& piece : o.pieces) {
      const std::size_t at = values.size();
      values.resize(at + piece.numel);
      read_stored(piece.dtype, piece.data, piece.numel, values.data() + at);
    }
    met_[i] = values.size() >= expected.values.size() && std::equal(expected.values.begin(), expected.values.end(), values.begin());
    values.resize(std::min(values.size(), expected.values.size()));
    how_not_[i] = fmt::format("holds [{}]", fmt::join(values, ", "));
  }
}

void FactsSink::collective(const CollectiveRecord& record) {
  auto& by_rank = facts_.collectives[std::string(name_of(record.purpose))];
  by_rank.resize(scenario_.world_size);
  by_rank[record.rank].resize(timeline_.steps, 0);
  ++by_rank[record.rank][timeline_.events[record.event].step];
}

void FactsSink::memory(const MemoryRecord& record) {
  if (!record.allocated) return;
  std::string name(record.buffer.substr(0, record.buffer.find('[')));
  const auto at = std::lower_bound(facts_.allocated.begin(), facts_.allocated.end(), name);
  if (at == facts_.allocated.end() || *at != name) facts_.allocated.insert(at, std::move(name));
}

RunFacts FactsSink::take(RunSummary summary) {
  facts_.summary = std::move(summary);
  for (std::size_t i = 0; i < met_.size(); ++i) {
    const ExpectedValues& expected = scenario_.expect.values[i];
    if (met_[i]) continue;
    if (how_not_[i].empty()) how_not_[i] = others_[i].empty() ? "no buffer is shown there" : "no such buffer is shown there, but " + others_[i];
    facts_.unmet_values.push_back(fmt::format("rank {}, event {}, {}: expected [{}], {}", expected.rank, expected.event, expected.buffer,
                                                fmt::join(expected.values, ", "), how_not_[i]));
  }
  return std::move(facts_);
}

}  // namespace gradledger::ref
