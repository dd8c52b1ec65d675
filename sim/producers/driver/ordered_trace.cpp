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
  const std::uint32_t event = done.event;
  put(rank, {event, std::move(done), goes_on});
}

void OrderedTrace::hand_on(std::uint32_t before_event) {
  while (true) {
    std::uint32_t next = before_event;
    for (const auto& shown : waiting_)
      if (!shown.empty()) next = std::min(next, shown.front().event);
    if (next >= before_event) return;
    // What ranks work with before what any of them is left with, which may be another one's work.
    std::vector<std::pair<std::uint32_t, Shown>> left;
    for (std::uint32_t rank = 0; rank < waiting_.size(); ++rank)
      for (auto& shown = waiting_[rank]; !shown.empty() && shown.front().event == next; shown.pop_front()) {
        if (const auto* record = std::get_if<CollectiveRecord>(&shown.front().what)) {
          sink_.collective(*record);
          continue;
        }
        show_work(rank, std::get<Done>(shown.front().what));
        left.emplace_back(rank, std::move(shown.front()));
      }
    for (const auto& [rank, shown] : left) show_left(rank, std::get<Done>(shown.what), shown.goes_on);
  }
}

void OrderedTrace::finish() {
  hand_on(no_event);
  for (const MismatchRecord& record : mismatches_) sink_.mismatch(record);
  for (const DeadlockRecord& record : deadlocks_) sink_.deadlock(record);
}

void OrderedTrace::show_work(std::uint32_t rank, const Done& done) {
  for (const auto& [fact, value] : done.facts) sink_.step_fact({rank, done.event, fact, value});
  for (const ShownBuffer& buffer : done.buffers)
    if (!buffer.at_end) show(rank, done.event, buffer);
}

void OrderedTrace::show_left(std::uint32_t rank, const Done& done, bool goes_on) {
  for (const ShownBuffer& buffer : done.buffers)
    if (buffer.at_end) show(rank, done.event, buffer);
  if (done.error) sink_.engine_error({rank, done.event, done.error->type, done.error->text});
  if (goes_on) sink_.event_done(rank, done.event);
}

void OrderedTrace::show(std::uint32_t rank, std::uint32_t event, const ShownBuffer& buffer) {
  hash_.add((std::uint64_t{rank} << 32) | event);
  hash_.add_bytes(std::as_bytes(std::span(buffer.data)));
  sink_.observe(observation_of(buffer, rank, event));
}

}  // namespace gradledger::driver
