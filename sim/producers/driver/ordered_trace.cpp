#include <algorithm>
#include <iterator>

#include "sim/producers/driver/driver_run.h"

namespace gradledger::driver {

void OrderedTrace::collective(const CollectiveRecord& record) {
  if (record.event != no_event) put(record.rank, {record.event, record});
}

// A collective of an event that the rank was told of ahead may be read before the end of the event before it: they come by two connections.
void OrderedTrace::put(std::uint32_t rank, Shown&& shown) {
  std::deque<Shown>& of_rank = waiting_[rank];
  auto at = of_rank.end();
  while (at != of_rank.begin() && std::prev(at)->event > shown.event) --at;
  of_rank.insert(at, std::move(shown));
}

void OrderedTrace::done(std::uint32_t rank, Done&& done, bool goes_on) {
  // What the event worked with comes before what it left.
  std::stable_partition(done.buffers.begin(), done.buffers.end(), [](const ShownBuffer& buffer) { return !buffer.at_end; });
  const std::uint32_t event = done.event;
  put(rank, {event, std::move(done), goes_on});
}

void OrderedTrace::hand_on(std::uint32_t before_event) {
  while (true) {
    std::uint32_t next = before_event;
    for (const auto& shown : waiting_)
      if (!shown.empty()) next = std::min(next, shown.front().event);
    if (next >= before_event) return;
    for (std::uint32_t rank = 0; rank < waiting_.size(); ++rank)
      for (auto& shown = waiting_[rank]; !shown.empty() && shown.front().event == next; shown.pop_front()) hand_on(rank, shown.front());
  }
}

void OrderedTrace::finish() {
  hand_on(no_event);
  for (const MismatchRecord& record : mismatches_) sink_.mismatch(record);
  for (const DeadlockRecord& record : deadlocks_) sink_.deadlock(record);
}

void OrderedTrace::hand_on(std::uint32_t rank, const Shown& shown) {
  if (const auto* record = std::get_if<CollectiveRecord>(&shown.what)) sink_.collective(*record);
  else hand_on(rank, std::get<Done>(shown.what), shown.goes_on);
}

void OrderedTrace::hand_on(std::uint32_t rank, const Done& done, bool goes_on) {
  for (const auto& [fact, value] : done.facts) sink_.step_fact({rank, done.event, fact, value});
  for (const ShownBuffer& buffer : done.buffers) {
    hash_.add((std::uint64_t{rank} << 32) | done.event);
    hash_.add_bytes(std::as_bytes(std::span(buffer.data)));
    sink_.observe(observation_of(buffer, rank, done.event));
  }
  if (done.error) sink_.engine_error({rank, done.event, done.error->type, done.error->text});
  if (goes_on) sink_.event_done(rank, done.event);
}

}  // namespace gradledger::driver
