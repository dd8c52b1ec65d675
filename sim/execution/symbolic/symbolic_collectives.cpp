// Collectives on linear forms: what every rank hands over becomes one form, or moves from rank to rank.
#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "sim/execution/symbolic/symbolic_memory.h"

namespace gradledger {

void SymbolicMemory::perform(std::span<const SymbolicParticipant> participants, std::uint32_t root, const Leaves& leaves) {
  const CollectiveCall& first = *participants.front().call;
  const auto world = static_cast<std::uint32_t>(participants.size());
  Stretches whole;
  switch (first.kind) {
    case CollectiveKind::all_reduce: reduce(participants, false, whole); return write_to_all(participants, whole);
    case CollectiveKind::reduce: {
      reduce(participants, false, whole);
      const SymbolicParticipant& to = participants[root];  // nobody else receives it
      const std::uint32_t leader = classes_.leader(to.rank);
      const std::span<const std::uint32_t> members = classes_.members(leader);
      if (to.rank != leader) leaves(to.rank);
      else
        for (const std::uint32_t member : std::vector(members.begin(), members.end())) leaves(member);
      return write(to.rank, to.call->output, whole);
    }
    case CollectiveKind::reduce_scatter: {
      const std::shared_ptr<const Rows> rows = common_rows(participants);
      reduce(participants, rows != nullptr, whole);
      PiecewiseBuffer sums(first.input.numel);
      if (rows) sums.clear_to(rows);
      if (!whole.empty()) sums.write_all(whole);
      return scatter(participants, sums, leaves);
    }
    case CollectiveKind::all_gather: gather(participants, 0, world, whole); return write_to_all(participants, whole);
    case CollectiveKind::broadcast: gather(participants, root, root + 1, whole); return write_to_all(participants, whole);
  }
}

void SymbolicMemory::write_to_all(std::span<const SymbolicParticipant> participants, const Stretches& whole) {
  for (const SymbolicParticipant& p : participants)
    if (classes_.leads(p.rank)) write(p.rank, p.call->output, whole);
}

// Each its share. A class goes on together where all hold the same forms, each one's as much further on as places lie between them.
void SymbolicMemory::scatter(std::span<const SymbolicParticipant> participants, const PiecewiseBuffer& sums, const Leaves& leaves) {
  struct Received {
    const SymbolicParticipant* of;
    Stretches held;
    bool paced = false;
  };
  std::vector<Received> shares, apart;
  std::vector<std::size_t> share_of(buffers_.size());  // by leader
  const std::uint64_t chunk = sums.numel() / participants.size();
  Stretches own;
  for (std::size_t i = 0; i < participants.size(); ++i) {
    const SymbolicParticipant& p = participants[i];
    sums.read(i * chunk, chunk, own);
    const std::uint32_t leader = classes_.leader(p.rank);
    if (leader == p.rank && classes_.members(leader).empty()) {
      write(p.rank, p.call->output, own);
    } else if (leader == p.rank) {
      share_of[leader] = shares.size();
      shares.push_back({&p, own});
    } else {
      Received& share = shares[share_of[leader]];
      if (takes_pace(share.held, own, classes_.places(p.rank), !share.paced)) share.paced = true;
      else apart.push_back({&p, own});
    }
  }
  for (const Received& share : apart) {
    Slice output = share.of->call->output;  // the leader's
    output.offset += static_cast<std::uint64_t>(classes_.places(share.of->rank) * share.of->call->pace);
    leaves(share.of->rank);
    write(share.of->rank, output, share.held);
  }
  for (Received& share : shares) {
    if (classes_.members(share.of->rank).empty()) {
      for (Stretch& s : share.held) s.pace = 0;
    } else if (share.of->call->pace != 0) {
      keep_share(share.of->rank, share.of->call->output, share.of->call->pace);
    }
    write(share.of->rank, share.of->call->output, share.held);
  }
}

// Whether another rank of the class holds what its leader does. first: the leader's paces are to be found.
bool SymbolicMemory::takes_pace(Stretches& of_leader, const Stretches& of_other, std::int64_t places, bool first) {
  if (of_leader.size() != of_other.size()) return false;
  for (std::size_t i = 0; i < of_leader.size(); ++i) {
    const Stretch &a = of_leader[i], &b = of_other[i];
    if (a.begin != b.begin || a.end != b.end || a.form != b.form || (a.origin == no_origin) != (b.origin == no_origin)) return false;
    if (a.origin == no_origin) continue;
    const std::int64_t further = b.origin - a.origin;
    if (first ? places == 0 || further % places != 0 : further != places * paces_[a.pace]) return false;
  }
  if (first)
    for (std::size_t i = 0; i < of_leader.size(); ++i)
      if (of_leader[i].origin != no_origin) of_leader[i].pace = pace_of((of_other[i].origin - of_leader[i].origin) / places);
  return true;
}

PaceId SymbolicMemory::pace_of(std::int64_t elements) {
  const auto known = std::find(paces_.begin(), paces_.end(), elements);
  if (known == paces_.end()) paces_.push_back(elements);
  return static_cast<PaceId>(std::find(paces_.begin(), paces_.end(), elements) - paces_.begin());
}

// What participants [from, to) hand over, one after the other.
void SymbolicMemory::gather(std::span<const SymbolicParticipant> participants, std::uint32_t from, std::uint32_t to, Stretches& out) {
  out.clear();
  std::uint64_t at = 0;
  for (std::uint32_t i = from; i < to; ++i) {
    read_any(participants[i].rank, participants[i].call->input, other_);
    for (const Stretch& s : other_) {
      Stretch own = moved({at + s.begin, at + s.end}, s, -static_cast<std::int64_t>(at));
      own.form = forms_.on_rank(s.form, participants[i].rank);
      append(out, own);
    }
    at += participants[i].call->input.numel;
  }
}

std::shared_ptr<const Rows> SymbolicMemory::common_rows(std::span<const SymbolicParticipant> participants) {
  std::shared_ptr<const Rows> common;
  for (const SymbolicParticipant& p : participants) {
    if (!classes_.leads(p.rank)) continue;
    const PiecewiseBuffer& all = buffer(p.rank, p.call->input.buffer);
    if (!all.rows() || p.call->input.numel != all.numel()) return nullptr;
    if (!common) common = all.rows();
    else if (*common != *all.rows()) return nullptr;
  }
  return common;
}

// Takes in what a rank hands over, of its whole class at once where that lies at the same place.
void SymbolicMemory::take_in(const SymbolicParticipant& of, bool as_kept) {
  const std::uint32_t leader = classes_.leader(of.rank);
  if (leader != of.rank && took_in_all_[leader]) return;
  if (inputs_.size() <= parties_.size()) inputs_.emplace_back();
  Stretches& input = inputs_[parties_.size()];
  if (as_kept) buffer(leader, of.call->input.buffer).read_all(input);
  else read(leader, of.call->input, input);
  const bool for_all = leader == of.rank && std::all_of(input.begin(), input.end(), [](const Stretch& s) { return s.pace == 0; });
  parties_.push_back({of.rank, for_all});
  took_in_all_[of.rank] = for_all;
  if (!for_all)
    for (Stretch& s : input) s = as_of(classes_.places(of.rank), s);
}

// Cut where any rank's input changes.
void SymbolicMemory::reduce(std::span<const SymbolicParticipant> participants, bool as_kept, Stretches& out) {
  parties_.clear();
  took_in_all_.assign(buffers_.size(), false);
  for (const SymbolicParticipant& participant : participants) take_in(participant, as_kept);
  sum_up(*participants.front().call, participants.size(), out);
}

void SymbolicMemory::sum_up(const CollectiveCall& call, std::size_t world, Stretches& out) {
  const std::uint64_t numel = call.input.numel;
  std::vector<std::size_t> at(parties_.size(), 0);
  std::vector<Stretch> held(parties_.size());
  out.clear();
  for (std::uint64_t begin = 0; begin < numel;) {
    std::uint64_t end = numel;
    for (std::size_t i = 0; i < at.size(); ++i) end = std::min(end, inputs_[i][at[i]].end);
    for (std::size_t i = 0; i < at.size(); ++i) {
      held[i] = inputs_[i][at[i]];
      held[i].begin = begin;
      held[i].end = end;
      if (inputs_[i][at[i]].end == end) ++at[i];
    }
    append(out, reduced(call, world, held));
    begin = end;
  }
}

// Contributions that are each rank's own would be others in the other groups, and what lies at other paces does not meet there.
bool SymbolicMemory::may_reduce_apart(std::span<const SymbolicParticipant> leaders) {
  parties_.clear();
  for (const SymbolicParticipant& leader : leaders) {
    if (inputs_.size() <= parties_.size()) inputs_.emplace_back();
    read(leader.rank, leader.call->input, inputs_[parties_.size()]);
    for (const Stretch& s : inputs_[parties_.size()])
      if (forms_.says_own(s.form)) return false;
    parties_.push_back({leader.rank, false});
  }
  parts_ = false;
  sum_up(*leaders.front().call, leaders.size(), apart_);
  return !std::exchange(parts_, false);
}

void SymbolicMemory::reduce_apart(std::span<const SymbolicParticipant> leaders) { write_to_all(leaders, apart_); }

Stretch SymbolicMemory::reduced(const CollectiveCall& call, std::size_t world, std::span<const Stretch> held) {
  if (call.op == ReduceOp::max) return largest(held);
  // Ranks that hold the same are added up at once.
  std::vector<std::pair<Stretch, std::vector<std::uint32_t>>> alike;
  for (std::size_t i = 0; i < held.size(); ++i) {
    auto same = std::find_if(alike.begin(), alike.end(), [&](const auto& a) { return a.first == held[i]; });
    if (same == alike.end()) same = alike.insert(alike.end(), {held[i], {}});
    same->second.push_back(parties_[i].rank);
    if (!parties_[i].for_all) continue;
    const std::span<const std::uint32_t> members = classes_.members(parties_[i].rank);
    same->second.insert(same->second.end(), members.begin(), members.end());
  }
  Stretch sum{held.front().begin, held.front().end, LinearForms::zero};
  for (auto& [stretch, ranks] : alike) {
    std::sort(ranks.begin(), ranks.end());
    Stretch of_all = stretch;
    of_all.form = forms_.over_ranks(stretch.form, ranks);
    sum = sum_of(sum, told(of_all));
  }
  if (call.op == ReduceOp::sum) return sum;
  const auto factor = call.op == ReduceOp::avg ? std::optional(Rational(1, static_cast<std::int64_t>(world))) : quotient_of(call.factor);
  if (sum.form != LinearForms::poison) sum.form = factor ? forms_.scaled(sum.form, *factor) : LinearForms::untold;
  return told(sum);
}

// Of flags.
Stretch SymbolicMemory::largest(std::span<const Stretch> held) {
  double most = -std::numeric_limits<double>::infinity();
  for (const Stretch& s : held) {
    const bool number = s.form > LinearForms::untold && !forms_.has_terms(s.form);
    if (!number) return {s.begin, s.end, s.form == LinearForms::poison ? LinearForms::poison : LinearForms::untold};
    most = std::max(most, forms_.constant(s.form));
  }
  return {held.front().begin, held.front().end, forms_.number(most)};
}

}  // namespace gradledger
