#include "ref/facts.h"

#include <algorithm>
#include <tuple>

namespace gradledger::ref {
namespace {

// Whatever order ranks ran in: the first event that one of them calls at.
auto place_of(const MismatchRecord& record) {
  const CollectiveRecord& first = record.calls.front();
  const auto earliest = std::min_element(record.calls.begin(), record.calls.end(), [](const CollectiveRecord& a, const CollectiveRecord& b) { return a.event < b.event; });
  return std::tuple(earliest->event, first.line(), first.sequence);
}

}  // namespace

FactsSink::FactsSink(const Workload& workload, const Timeline& timeline) : workload_(workload), timeline_(timeline) { facts_.host_gradients.resize(workload.world_size); }

template <class Snapshot>
void FactsSink::note_space(const Snapshot& o) {
  if (o.space == MemorySpace::host && (holds_gradients(o.role) || o.role == Role::scratch)) facts_.host_gradients[o.rank] = true;
}

void FactsSink::collective(const CollectiveRecord& record) {
  auto& by_rank = collectives_[record.purpose];
  by_rank.resize(workload_.world_size);
  by_rank[record.rank].resize(timeline_.steps, 0);
  ++by_rank[record.rank][timeline_.events[record.event].step];
  const bool of_loop = record.purpose == Purpose::user && timeline_.events[record.event].touches_gradients() && timeline_.events[record.event].is<events::AllReduce>();
  if (!of_loop && (record.purpose != Purpose::gradient || reduces_here(record.event))) return;
  SurplusCollectives& s = surplus_[{record.event, record.rank}];
  s.event = record.event;
  s.rank = record.rank;
  ++s.collectives;
  s.bytes += std::uint64_t{record.numel} * size_of(record.dtype);
}

// By the documentation: at the window's reductions, or in a step that makes its own.
bool FactsSink::reduces_here(std::uint32_t event) const {
  const Event& e = timeline_.events[event];
  if (e.is<events::Step>()) return !timeline_.contract.boundary.counted && e.closes();
  const auto among = [event](const std::vector<std::uint32_t>& list) { return std::binary_search(list.begin(), list.end(), event); };
  return among(timeline_.reductions) || among(timeline_.partial) || among(timeline_.apart);
}

void FactsSink::mismatch(const MismatchRecord& record) {
  if (!facts_.mismatch || place_of(record) < place_of(*facts_.mismatch)) facts_.mismatch = record;
}

void FactsSink::memory(const MemoryRecord& record) {
  if (!record.allocated || record.again) return;
  const auto name = record.buffer.substr(0, record.buffer.find('['));
  const auto at = std::lower_bound(facts_.allocated.begin(), facts_.allocated.end(), name);
  if (at == facts_.allocated.end() || *at != name) facts_.allocated.insert(at, std::string(name));
}

RunFacts FactsSink::take(RunSummary summary) {
  facts_.summary = std::move(summary);
  for (auto& [purpose, by_rank] : collectives_) facts_.collectives[std::string(name_of(purpose))] = std::move(by_rank);
  for (const auto& [at, s] : surplus_) facts_.surplus.push_back(s);
  return std::move(facts_);
}

}  // namespace gradledger::ref
