// Collectives on linear forms: what every rank hands over becomes one form, or moves from rank to rank.
#include <algorithm>
#include <limits>

#include "sim/execution/symbolic/symbolic_memory.h"

namespace gradledger {

void SymbolicMemory::perform(std::span<const SymbolicParticipant> participants, std::uint32_t root) {
  const CollectiveCall& first = *participants.front().call;
  const auto world = static_cast<std::uint32_t>(participants.size());
  Stretches whole;
  switch (first.kind) {
    case CollectiveKind::all_reduce:
      reduce(participants, false, whole);
      for (const SymbolicParticipant& p : participants) write(p.rank, p.call->output, whole);
      return;
    case CollectiveKind::reduce: reduce(participants, false, whole); return write(participants[root].rank, participants[root].call->output, whole);
    case CollectiveKind::reduce_scatter: {
      const std::shared_ptr<const Rows> rows = common_rows(participants);
      reduce(participants, rows != nullptr, whole);
      PiecewiseBuffer sums(first.input.numel);
      if (rows) sums.clear_to(rows);
      if (!whole.empty()) sums.write_all(whole);
      const std::uint64_t chunk = first.input.numel / world;
      for (std::uint32_t i = 0; i < world; ++i) {
        sums.read(i * chunk, chunk, whole);
        write(participants[i].rank, participants[i].call->output, whole);
      }
      return;
    }
    case CollectiveKind::all_gather:
      gather(participants, 0, world, whole);
      for (const SymbolicParticipant& p : participants) write(p.rank, p.call->output, whole);
      return;
    case CollectiveKind::broadcast:
      gather(participants, root, root + 1, whole);
      for (const SymbolicParticipant& p : participants) write(p.rank, p.call->output, whole);
      return;
  }
}

// What participants [from, to) hand over, one after the other.
void SymbolicMemory::gather(std::span<const SymbolicParticipant> participants, std::uint32_t from, std::uint32_t to, Stretches& out) {
  out.clear();
  std::uint64_t at = 0;
  for (std::uint32_t i = from; i < to; ++i) {
    read(participants[i].rank, participants[i].call->input, other_);
    for (const Stretch& s : other_) {
      const FormId form = forms_.on_rank(s.form, participants[i].rank);
      append(out, {at + s.begin, at + s.end, form, s.origin == no_origin ? no_origin : s.origin - static_cast<std::int64_t>(at)});
    }
    at += participants[i].call->input.numel;
  }
}

std::shared_ptr<const Rows> SymbolicMemory::common_rows(std::span<const SymbolicParticipant> participants) {
  std::shared_ptr<const Rows> common;
  for (const SymbolicParticipant& p : participants) {
    const PiecewiseBuffer& all = buffer(p.rank, p.call->input.buffer);
    if (!all.rows() || p.call->input.numel != all.numel()) return nullptr;
    if (!common) common = all.rows();
    else if (*common != *all.rows()) return nullptr;
  }
  return common;
}

// Cut where any rank's input changes.
void SymbolicMemory::reduce(std::span<const SymbolicParticipant> participants, bool as_kept, Stretches& out) {
  inputs_.resize(participants.size());
  for (std::size_t i = 0; i < participants.size(); ++i) {
    const Slice input = participants[i].call->input;
    if (as_kept) buffer(participants[i].rank, input.buffer).read_all(inputs_[i]);
    else read(participants[i].rank, input, inputs_[i]);
  }
  const std::uint64_t numel = participants.front().call->input.numel;
  std::vector<std::size_t> at(participants.size(), 0);
  std::vector<Stretch> held(participants.size());
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
    append(out, reduced(participants, held));
    begin = end;
  }
}

Stretch SymbolicMemory::reduced(std::span<const SymbolicParticipant> participants, std::span<const Stretch> held) {
  const CollectiveCall& call = *participants.front().call;
  if (call.op == ReduceOp::max) return largest(held);
  // Ranks that hold the same are added up at once.
  std::vector<std::pair<Stretch, std::vector<std::uint32_t>>> alike;
  for (std::size_t i = 0; i < held.size(); ++i) {
    const auto same = std::find_if(alike.begin(), alike.end(), [&](const auto& a) { return a.first == held[i]; });
    if (same != alike.end()) same->second.push_back(participants[i].rank);
    else alike.push_back({held[i], {participants[i].rank}});
  }
  Stretch sum{held.front().begin, held.front().end, LinearForms::zero, no_origin};
  for (const auto& [stretch, ranks] : alike) {
    Stretch of_all = stretch;
    of_all.form = forms_.over_ranks(stretch.form, ranks);
    sum = sum_of(sum, told(of_all));
  }
  if (call.op == ReduceOp::sum) return sum;
  const auto factor = call.op == ReduceOp::avg ? std::optional(Rational(1, static_cast<std::int64_t>(held.size()))) : quotient_of(call.factor);
  if (sum.form != LinearForms::poison) sum.form = factor ? forms_.scaled(sum.form, *factor) : LinearForms::untold;
  return told(sum);
}

// Of flags.
Stretch SymbolicMemory::largest(std::span<const Stretch> held) {
  double most = -std::numeric_limits<double>::infinity();
  for (const Stretch& s : held) {
    const bool number = s.form > LinearForms::untold && !forms_.has_terms(s.form);
    if (!number) return {s.begin, s.end, s.form == LinearForms::poison ? LinearForms::poison : LinearForms::untold, no_origin};
    most = std::max(most, forms_.constant(s.form));
  }
  return {held.front().begin, held.front().end, forms_.number(most), no_origin};
}

}  // namespace gradledger
