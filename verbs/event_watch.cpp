#include "verbs/event_watch.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "ref/dtype_facts.h"
#include "sim/base/hash.h"

namespace gradledger::verbs {

void EventWatch::observe(const Observation& o) {
  if (!holds_gradients(o.role)) return;
  double squares = 0;
  std::vector<double> values;
  for (const ObservedPiece& piece : o.pieces) {
    if (piece.parameter < 0) continue;
    values.resize(piece.numel);
    ref::read_stored(piece.dtype, piece.data, piece.numel, values.data());
    for (double x : values) squares += x * x;
  }
  at(o.rank, o.event).push_back({Kind::buffer, static_cast<std::uint8_t>(o.role), o.at_end, true, buffers_.number_of(o.buffer), std::sqrt(squares) / o.scale});
}

void EventWatch::weights(const WeightObservation& o) {
  if (holds_gradients(o.role)) at(o.rank, o.event).push_back({Kind::buffer, static_cast<std::uint8_t>(o.role), o.at_end, false, buffers_.number_of(o.buffer), 0});
}

void EventWatch::collective(const CollectiveRecord& r) { at(r.rank, r.event).push_back({Kind::collective, 0, false, false, number_of(r), 0}); }

void EventWatch::step_fact(const StepRecord& r) { at(r.rank, r.event).push_back({Kind::fact, static_cast<std::uint8_t>(r.fact), false, true, 0, r.value}); }

void EventWatch::event_done(std::uint32_t rank, std::uint32_t event) {
  at(rank, event);
  const std::vector<Open>& all = open_[rank];
  close(rank, static_cast<std::size_t>(std::find_if(all.begin(), all.end(), [&](const Open& o) { return o.event == event; }) - all.begin()));
}

// What is shown of a later round has the names and the texts of the one that was kept.
void EventWatch::round_again(KeptRound& round) {
  if (round.round() == 1) {
    events_of_round_.clear();
    for (const KeptRound::Entry& entry : round.entries())
      if (entry.kind == KeptRound::Kind::event_done) events_of_round_.push_back(entry.index);
    std::sort(events_of_round_.begin(), events_of_round_.end());
    events_of_round_.erase(std::unique(events_of_round_.begin(), events_of_round_.end()), events_of_round_.end());
  }
  for (std::uint32_t rank = 0; rank < closed_.size(); ++rank)
    for (const std::uint32_t event : events_of_round_) {
      const std::uint32_t number = closed(rank, event);
      closed(rank, event + round.events_later()) = number;
    }
}

std::map<std::uint32_t, std::vector<EventWatch::Alike>> EventWatch::lines() {
  for (std::uint32_t rank = 0; rank < open_.size(); ++rank)
    while (!open_[rank].empty()) close(rank, 0);
  std::vector<std::shared_ptr<const report::EventLine::Record>> records(items_.size());
  std::map<std::uint32_t, std::vector<Alike>> out;
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::size_t> places;  // by event and number
  for (std::uint32_t rank = 0; rank < closed_.size(); ++rank)
    for (std::uint32_t event = 0; event < closed_[rank].size(); ++event) {
      if (closed_[rank][event] == 0) continue;
      const std::uint32_t number = closed_[rank][event] - 1;
      std::vector<Alike>& of_event = out[event];
      const auto [place, fresh] = places.try_emplace({event, number}, of_event.size());
      if (fresh) {
        if (!records[number]) records[number] = record_of(items_[number]);
        of_event.push_back({{}, records[number]});
      }
      of_event[place->second].ranks.push_back(rank);
    }
  return out;
}

// By their bits: a norm that is no number is like itself.
bool EventWatch::Item::operator==(const Item& other) const {
  return kind == other.kind && detail == other.detail && at_end == other.at_end && has_value == other.has_value && name == other.name &&
         std::bit_cast<std::uint64_t>(value) == std::bit_cast<std::uint64_t>(other.value);
}

// Of an event that was over it goes on with what there was.
EventWatch::Items& EventWatch::at(std::uint32_t rank, std::uint32_t event) {
  if (open_.size() <= rank) open_.resize(rank + 1);
  for (Open& one : open_[rank])
    if (one.event == event) return one.items;
  Open& fresh = open_[rank].emplace_back();
  fresh.event = event;
  if (std::uint32_t& before = closed(rank, event); before != 0) fresh.items = items_[std::exchange(before, 0) - 1];
  return fresh.items;
}

std::uint32_t& EventWatch::closed(std::uint32_t rank, std::uint32_t event) {
  if (closed_.size() <= rank) closed_.resize(rank + 1);
  if (closed_[rank].size() <= event) closed_[rank].resize(event + 1, 0);
  return closed_[rank][event];
}

void EventWatch::close(std::uint32_t rank, std::size_t place) {
  Open over = std::move(open_[rank][place]);
  open_[rank].erase(open_[rank].begin() + static_cast<std::ptrdiff_t>(place));
  closed(rank, over.event) = number_of(std::move(over.items)) + 1;
}

std::uint32_t EventWatch::number_of(const CollectiveRecord& r) {
  if (!r.in_words.empty()) return calls_.number_of(r.in_words);
  const auto [known, fresh] = known_calls_.try_emplace({r.kind, r.op, r.purpose, r.dtype, r.numel, r.root, r.group}, 0);
  if (fresh) known->second = calls_.number_of(r.text());
  return known->second;
}

std::uint32_t EventWatch::number_of(Items items) {
  if (last_ < items_.size() && items_[last_] == items) return last_;
  PairHash hash;
  for (const Item& item : items) {
    hash.add(static_cast<std::uint64_t>(item.kind) | std::uint64_t{item.detail} << 8 | std::uint64_t{item.at_end} << 16 | std::uint64_t{item.has_value} << 17, item.name);
    hash.add(std::bit_cast<std::uint64_t>(item.value), 0);
  }
  std::vector<std::uint32_t>& alike = numbers_[hash.value()];
  const auto known = std::find_if(alike.begin(), alike.end(), [&](std::uint32_t number) { return items_[number] == items; });
  if (known != alike.end()) return last_ = *known;
  last_ = static_cast<std::uint32_t>(items_.size());
  items_.push_back(std::move(items));
  alike.push_back(last_);
  return last_;
}

std::shared_ptr<const report::EventLine::Record> EventWatch::record_of(const Items& items) const {
  auto out = std::make_shared<report::EventLine::Record>();
  for (const Item& item : items) switch (item.kind) {
      case Kind::buffer:
        out->buffers.push_back({buffers_[item.name], static_cast<Role>(item.detail), item.has_value ? std::optional(item.value) : std::nullopt, item.at_end});
        break;
      case Kind::collective: out->collectives.push_back(calls_[item.name]); break;
      case Kind::fact: out->facts.emplace_back(static_cast<StepFact>(item.detail), item.value); break;
    }
  return out;
}

}  // namespace gradledger::verbs
