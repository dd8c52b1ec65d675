#include "sim/producers/driver/coordinator.h"

#include <algorithm>
#include <utility>

#include "sim/base/contract.h"
#include "sim/producers/driver/group_results.h"

namespace gradledger::driver {

Coordinator::Coordinator(std::uint32_t world_size, std::uint64_t model_numel, TraceSink& sink, CoordinatorLimits limits)
    : model_numel_(model_numel), sink_(sink), limits_(limits), ranks_(world_size) {}

std::vector<GroupAnswer> Coordinator::ask(std::uint32_t r, GroupRequest&& request) {
  expects(r < ranks_.size() && !fault_of(request, r, static_cast<std::uint32_t>(ranks_.size())), "a request that was not checked");
  std::vector<GroupAnswer> out;
  Rank& rank = ranks_[r];
  if (rank.state == State::gone) return out;
  if (const auto why = out_of_turn(r, request)) {
    out.push_back({r, request.id, GroupAnswer::Kind::refused, {}, "CollectiveRefused", *why});
    if (!rank.last_id || request.id > *rank.last_id) rank.last_id = request.id;
    return out;
  }
  rank.last_id = request.id;
  rank.last_event = request.event;
  const Place place = place_of(r, request);
  rank.open.emplace(request.id, place);
  record(r, request, place);
  Line& line = *place.line;
  if (place.sequence == line.done + line.open.size()) line.open.emplace_back().calls.resize(line.ranks.size());
  Meeting& meeting = meeting_at(place);
  bytes_held_ += request.data.size();
  meeting.calls[place.slot] = std::move(request);
  ++meeting.arrived;
  if (!meeting.broken.empty()) refuse_arrived(line, meeting, "CollectiveDeadlock", std::string(meeting.broken), out);
  else if (meeting.arrived == line.ranks.size()) take_place(line, meeting, place.sequence, out);
  forget_finished(line);
  return out;
}

std::vector<GroupAnswer> Coordinator::wait(std::uint32_t r, std::uint64_t id) {
  Rank& rank = ranks_[r];
  const auto refused = [&](const char* why) { return std::vector<GroupAnswer>{{r, id, GroupAnswer::Kind::refused, {}, "CollectiveRefused", why}}; };
  if (rank.state == State::gone) return {};
  if (!rank.last_id || id > *rank.last_id) return refused("the rank waits for a collective that it never asked for");
  if (rank.state == State::waiting) return refused("the rank waits while it waits for another collective");
  if (!rank.open.contains(id)) return {};
  rank.state = State::waiting;
  rank.waits_for = id;
  return {};
}

void Coordinator::running(std::uint32_t rank) { ranks_[rank].state = State::running; }
void Coordinator::idle(std::uint32_t rank) { ranks_[rank].state = State::idle; }
void Coordinator::gone(std::uint32_t rank) { ranks_[rank].state = State::gone; }

std::vector<GroupAnswer> Coordinator::settle() {
  std::vector<GroupAnswer> out;
  if (std::any_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.state == State::running; })) return out;
  for (std::uint32_t r = 0; r < ranks_.size(); ++r) {
    if (!waits(r)) continue;
    Place& place = ranks_[r].open.at(ranks_[r].waits_for);
    if (place.told_to_go_on || !meeting_at(place).calls[place.slot]->asynchronous) continue;
    place.told_to_go_on = true;
    answer(r, {r, ranks_[r].waits_for, GroupAnswer::Kind::go_on, {}, "", ""}, out);
    return out;
  }
  return refuse_stuck();
}

// ---- matching -----------------------------------------------------------------------------------------------------------------------------

// The last two are empty and 0 for what all members of a group take part in.
Coordinator::LineKey Coordinator::key_of(std::uint32_t r, const GroupRequest& request) {
  if (request.kind == GroupCall::send) return {request.group, request.tag, {r, request.peer}, request.message_tag};
  if (request.kind == GroupCall::receive) return {request.group, request.tag, {request.peer, r}, request.message_tag};
  return {request.group, request.tag, {}, 0};
}

std::optional<std::string> Coordinator::out_of_turn(std::uint32_t r, const GroupRequest& request) const {
  const Rank& rank = ranks_[r];
  if (rank.last_id && request.id <= *rank.last_id) return "the number of this collective is not above those before it";
  if (rank.state == State::waiting) return "the rank asks for a collective while it waits for another one";
  if (rank.open.size() >= limits_.open_by_rank) return "the rank has " + std::to_string(rank.open.size()) + " collectives open, and no more are kept";
  if (lines_.size() >= limits_.lines && !lines_.contains(key_of(r, request)))
    return "there are " + std::to_string(lines_.size()) + " groups and pairs of ranks, and no more are kept";
  if (request.data.size() > limits_.bytes - std::min(limits_.bytes, bytes_held_)) return "collectives that are open hold all of the memory that there is for them";
  return std::nullopt;
}

Coordinator::Place Coordinator::place_of(std::uint32_t r, const GroupRequest& request) {
  const auto [at, is_new] = lines_.try_emplace(key_of(r, request));
  Line& line = at->second;
  if (is_new) {
    const std::vector<std::uint32_t>& two = std::get<2>(at->first);
    line.ranks = two.empty() ? request.group : two;
    line.asked.resize(line.ranks.size(), 0);
    line.number = group_number(request.group, request.tag, static_cast<std::uint32_t>(ranks_.size()));
  }
  const auto slot = static_cast<std::size_t>(std::find(line.ranks.begin(), line.ranks.end(), r) - line.ranks.begin());
  return {&line, line.asked[slot]++, slot};
}

// Everybody is there.
void Coordinator::take_place(Line& line, Meeting& meeting, std::uint64_t sequence, std::vector<GroupAnswer>& out) {
  std::vector<const GroupRequest*> members;
  for (const auto& call : meeting.calls) members.push_back(&*call);
  if (const char* what = misfit(members)) {
    report_mismatch(what, line, meeting, sequence);
    return refuse_arrived(line, meeting, "CollectiveMismatch", differing_calls(what, line, meeting), out);
  }
  if (const auto why = refusal(members)) {
    const std::string call = call_text(*members.front(), static_cast<std::uint32_t>(ranks_.size()), model_numel_);
    return refuse_arrived(line, meeting, "CollectiveRefused", call + ": " + *why, out);
  }
  std::vector<std::vector<std::uint8_t>> results = results_of(members);
  for (std::size_t slot = 0; slot < line.ranks.size(); ++slot) {
    GroupRequest& call = *meeting.calls[slot];
    bytes_held_ -= std::exchange(call.data, {}).size();
    answer(line.ranks[slot], {line.ranks[slot], call.id, GroupAnswer::Kind::result, std::move(results[slot]), "", ""}, out);
  }
}

void Coordinator::refuse_arrived(Line& line, Meeting& meeting, const std::string& type, const std::string& text, std::vector<GroupAnswer>& out) {
  meeting.broken = text;
  for (std::size_t slot = 0; slot < line.ranks.size(); ++slot) {
    const std::uint32_t r = line.ranks[slot];
    if (!meeting.calls[slot] || !ranks_[r].open.contains(meeting.calls[slot]->id)) continue;
    bytes_held_ -= std::exchange(meeting.calls[slot]->data, {}).size();
    answer(r, {r, meeting.calls[slot]->id, GroupAnswer::Kind::refused, {}, type, text}, out);
  }
}

// To go on is no answer for good: the result is still due.
void Coordinator::answer(std::uint32_t r, GroupAnswer&& answer, std::vector<GroupAnswer>& out) {
  Rank& rank = ranks_[r];
  if (rank.state == State::waiting && rank.waits_for == answer.id) rank.state = State::running;
  if (answer.kind != GroupAnswer::Kind::go_on) rank.open.erase(answer.id);
  if (rank.state != State::gone) out.push_back(std::move(answer));
}

// Members come in order, so meetings are over in order.
void Coordinator::forget_finished(Line& line) {
  while (!line.open.empty() && line.open.front().arrived == line.ranks.size()) {
    line.open.pop_front();
    ++line.done;
  }
}

// ---- nobody can move --------------------------------------------------------------------------------------------------------------------------

std::vector<GroupAnswer> Coordinator::refuse_stuck() {
  std::vector<GroupAnswer> out;
  std::vector<Place> places;
  for (const Rank& rank : ranks_)
    if (rank.state == State::waiting) places.push_back(*stuck_at(rank));
  if (places.empty())
    for (const Rank& rank : ranks_)
      for (const auto& [id, place] : rank.open)
        if (rank.state != State::gone) places.push_back(place);
  if (places.empty()) return out;
  const std::string text = deadlock_text();
  report_deadlock();
  for (const Place& place : places) refuse_arrived(*place.line, meeting_at(place), "CollectiveDeadlock", text, out);
  std::stable_sort(out.begin(), out.end(), [](const GroupAnswer& a, const GroupAnswer& b) { return a.rank < b.rank; });
  return out;
}

}  // namespace gradledger::driver
