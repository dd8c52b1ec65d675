#include "sim/execution/rendezvous.h"

#include <algorithm>
#include <span>
#include <utility>

namespace gradledger {

std::uint32_t root_index(const std::vector<std::uint32_t>& group, std::uint32_t root) {
  const auto at = std::lower_bound(group.begin(), group.end(), root);
  return at != group.end() && *at == root ? static_cast<std::uint32_t>(at - group.begin()) : 0;
}

std::span<Meeting> Rendezvous::arrive(std::uint16_t r, Stream stream, const Op& op, SymbolicMemory* memory, const Dissolves& dissolves) {
  const CollectiveCall& call = ranks_[r].program.collectives[op.index];
  expects(call.group < groups_.size(), "a rank calls a collective of a group that is none");
  const Arrival arrival{op.index, op.event, stream};
  complete_.clear();
  const std::span<const std::uint32_t> members_of_class = classes_.members(r);
  const bool together = classes_.share(r, call.group);
  arrive_in(call.group, call, together ? members_of_class : std::span<const std::uint32_t>{}, r, arrival);
  for (std::size_t i = 0; i < members_of_class.size() && !together; ++i) arrive_in(classes_.group_for(members_of_class[i], call.group), call, {}, members_of_class[i], arrival);
  // Whether ranks of its class meet elsewhere.
  const auto apart = [this](const Meeting& meeting, std::uint32_t member) {
    return classes_.leads(member) ? !classes_.share(member, meeting.group) : meeting.rank[classes_.leader(member)].call == no_index;
  };
  const auto spans = [&](const Meeting& meeting) {
    return std::any_of(members(meeting).begin(), members(meeting).end(), [&](std::uint32_t member) { return apart(meeting, member); });
  };
  if (std::none_of(complete_.begin(), complete_.end(), spans)) return complete_;
  if (complete_.size() == classes_.size(r) && sit_alike(complete_.front()) && !misfit(complete_.front()) && memory->may_reduce_apart(participants(complete_.front()))) {
    complete_.front().of_classes = true;
    for (; complete_.size() > 1; complete_.pop_back()) recycle(std::move(complete_.back()));
    return complete_;
  }
  for (const Meeting& meeting : complete_)
    for (const std::uint32_t member : members(meeting))
      if (apart(meeting, member)) dissolves(classes_.leader(member));
  return complete_;
}

// A rank, and others of its class.
void Rendezvous::arrive_in(std::uint32_t group, const CollectiveCall& call, std::span<const std::uint32_t> others, std::uint32_t rank, const Arrival& arrival) {
  Meeting& meeting = meeting_of(group, call);
  arrive_alone(meeting, rank, arrival);
  for (const std::uint32_t other : others) arrive_alone(meeting, other, arrival);
  if (meeting.arrived < groups_[group].size()) return;
  complete_.push_back(std::move(meeting));
  meetings_.erase(meetings_.begin() + (&meeting - meetings_.data()));
}

// Whether those who meet there lead classes whose other ranks meet each other in the same order, as many places further on.
bool Rendezvous::sit_alike(const Meeting& meeting) const {
  const std::vector<std::uint32_t>& leaders = members(meeting);
  if (!std::all_of(leaders.begin(), leaders.end(), [this](std::uint32_t r) { return classes_.leads(r); })) return false;
  const std::span<const std::uint32_t> first = classes_.members(leaders.front());
  for (std::uint32_t i = 0; i < leaders.size(); ++i) {
    const std::span<const std::uint32_t> own = classes_.members(leaders[i]);
    if (own.size() != first.size()) return false;
    for (std::size_t k = 0; k < own.size(); ++k)
      if (groups_[classes_.group_for(first[k], meeting.group)][i] != own[k] || classes_.places(own[k]) != classes_.places(first[k])) return false;
  }
  return call_of(meeting, static_cast<std::uint16_t>(leaders.front())).kind == CollectiveKind::all_reduce;
}

Meeting& Rendezvous::meeting_of(std::uint32_t group, const CollectiveCall& call) {
  const auto known =
      std::find_if(meetings_.begin(), meetings_.end(), [&](const Meeting& m) { return m.group == group && m.communicator == call.communicator && m.sequence == call.sequence; });
  if (known != meetings_.end()) return *known;
  meetings_.push_back(spare_.empty() ? Meeting{} : std::move(spare_.back()));
  if (!spare_.empty()) spare_.pop_back();
  Meeting& meeting = meetings_.back();
  meeting.group = group;
  meeting.communicator = call.communicator;
  meeting.sequence = call.sequence;
  meeting.arrived = 0;
  meeting.of_classes = false;
  meeting.rank.assign(ranks_.size(), Arrival{});
  return meeting;
}

void Rendezvous::arrive_alone(Meeting& meeting, std::uint32_t rank, const Arrival& arrival) const {
  const std::vector<std::uint32_t>& group = groups_[meeting.group];
  expects(std::binary_search(group.begin(), group.end(), rank), "a rank calls a collective of a group that it is no member of");
  meeting.rank[rank] = arrival;
  ++meeting.arrived;
}

MismatchRecord Rendezvous::mismatch(const Meeting& meeting, const char* what) const {
  MismatchRecord record{what, {}};
  for (std::uint32_t r : members(meeting)) record.calls.push_back(record_of(static_cast<std::uint16_t>(r), meeting.rank[r].call, meeting.rank[r].event));
  return record;
}

DeadlockRecord Rendezvous::deadlock() const {
  DeadlockRecord record;
  for (std::uint32_t r = 0; r < ranks_.size(); ++r) {
    WaitingRank waiting{r, ranks_[classes_.leader(r)].event, awaited_by(static_cast<std::uint16_t>(r)), ranks_[r].finished};
    if (waiting.collective) waiting.event = waiting.collective->event;
    else if ((waiting.sender = late_sender(r))) waiting.event = program_of(r).ops[ranks_[classes_.leader(r)].head[0]].event;
    record.ranks.push_back(std::move(waiting));
  }
  return record;
}

// Sends of two ranks are counted, and not told apart: each line has one sender for each receiver.
std::optional<std::uint32_t> Rendezvous::late_sender(std::uint32_t r) const {
  const Rank& rank = ranks_[classes_.leader(r)];
  const std::uint32_t head = rank.head[static_cast<std::size_t>(Stream::host)];
  if (head == no_index || rank.program.ops[head].kind != OpKind::receive) return std::nullopt;
  const Op& op = rank.program.ops[head];
  const std::uint32_t sender = other_rank(r, op);
  expects(sender < ranks_.size(), "a rank receives from a rank that there is not");
  if (ranks_[classes_.leader(sender)].sends.sent[op.flag] > rank.sends.received[op.flag]) return std::nullopt;
  return sender;
}

bool Rendezvous::awaits_sender(std::uint16_t r) const {
  if (late_sender(r)) return true;
  const std::span<const std::uint32_t> members = classes_.members(r);
  return std::any_of(members.begin(), members.end(), [&](std::uint32_t member) { return late_sender(member).has_value(); });
}

bool Rendezvous::part_receivers(const Dissolves& dissolves) const {
  for (std::uint32_t r = 0; r < ranks_.size(); ++r) {
    if (!classes_.leads(r) || classes_.members(r).empty()) continue;
    const std::span<const std::uint32_t> members = classes_.members(r);
    const auto late = static_cast<std::size_t>(std::count_if(members.begin(), members.end(), [&](std::uint32_t member) { return late_sender(member).has_value(); }));
    if (late == (late_sender(r) ? members.size() : 0)) continue;
    dissolves(r);
    return true;
  }
  return false;
}

CollectiveRecord Rendezvous::record_of(std::uint16_t r, std::uint32_t index, std::uint32_t event) const {
  const CollectiveCall& call = program_of(r).collectives[index];
  const std::uint64_t sent = call.compressed_numel > 0 ? call.compressed_numel : call.input.numel;
  return {
      r, event, classes_.group_for(r, call.group), call.sequence, call.kind, call.op, call.purpose, dtype_of(r, call.input), sent, call.root, call.factor, {}, call.communicator};
}

std::optional<CollectiveRecord> Rendezvous::awaited_by(std::uint16_t r) const {
  for (const Meeting& meeting : meetings_)
    if (const Arrival& arrival = meeting.rank[r]; arrival.call != no_index) return record_of(r, arrival.call, arrival.event);
  return std::nullopt;
}

const char* Rendezvous::misfit(const Meeting& meeting) const {
  const auto one = static_cast<std::uint16_t>(members(meeting).front());
  const CollectiveCall& first = call_of(meeting, one);
  for (std::uint32_t member : members(meeting)) {
    const auto r = static_cast<std::uint16_t>(member);
    if (!classes_.leads(r)) continue;
    const CollectiveCall& other = call_of(meeting, r);
    if (other.kind != first.kind) return "kind";
    if (dtype_of(r, other.input) != dtype_of(one, first.input)) return "dtype";
    if (other.input.numel != first.input.numel) return "size";
    if (other.op != first.op || other.factor != first.factor) return "operator";
    if (other.root != first.root) return "root";
  }
  return nullptr;
}

void Rendezvous::perform(const Meeting& meeting, Devices* devices) {
  if (devices) run_on(*devices, meeting);
  else run_on_host(meeting);
  mark_results(meeting);
}

void Rendezvous::perform(const Meeting& meeting, SymbolicMemory& memory, const SymbolicMemory::Leaves& leaves) {
  if (meeting.of_classes) return memory.reduce_apart(participants(meeting));
  const std::uint32_t root = root_index(members(meeting), participants(meeting).front().call->root);
  memory.perform(symbolic_, root, leaves);
}

const std::vector<SymbolicParticipant>& Rendezvous::participants(const Meeting& meeting) {
  symbolic_.clear();
  for (std::uint32_t member : members(meeting)) symbolic_.push_back({member, &call_of(meeting, static_cast<std::uint16_t>(member))});
  return symbolic_;
}

void Rendezvous::run_on_host(const Meeting& meeting) {
  const std::vector<std::uint32_t>& group = members(meeting);
  const auto one = static_cast<std::uint16_t>(group.front());
  const CollectiveCall& first = call_of(meeting, one);
  const Dtype dtype = ranks_[one].memory.storage(first.input.buffer).dtype;
  buffers_.clear();
  for (std::uint32_t member : group) {
    const CollectiveCall& call = call_of(meeting, static_cast<std::uint16_t>(member));
    buffers_.push_back({ranks_[member].memory.at(call.input), ranks_[member].memory.at(call.output)});
  }
  run_collective(first.kind, first.op, dtype, first.input.numel, root_index(group, first.root), arithmetic_, buffers_, first.factor);
}

void Rendezvous::run_on(Devices& devices, const Meeting& meeting) {
  const std::vector<std::uint32_t>& group = members(meeting);
  participants_.clear();
  for (std::uint32_t member : group) {
    const auto r = static_cast<std::uint16_t>(member);
    const CollectiveCall& call = call_of(meeting, r);
    Command command;
    command.kind = OpKind::collective;
    command.stream = meeting.rank[r].stream;
    command.collective = call.kind;
    command.scalar = call.factor;
    command.op = call.op;
    command.root = root_index(group, call.root);
    command.target = {call.output.buffer, call.output.offset, call.output.numel, dtype_of(r, call.output)};
    command.source = {call.input.buffer, call.input.offset, call.input.numel, dtype_of(r, call.input)};
    participants_.push_back({member, command});
  }
  devices.collective(participants_);
}

void Rendezvous::mark_results(const Meeting& meeting) {
  const std::vector<std::uint32_t>& group = members(meeting);
  const bool all_written = std::all_of(group.begin(), group.end(), [&](std::uint32_t member) {
    const Slice input = call_of(meeting, static_cast<std::uint16_t>(member)).input;
    return ranks_[member].memory.storage(input.buffer).holds(input);
  });
  RangeSet written;
  if (!all_written) written = written_after(meeting, call_of(meeting, static_cast<std::uint16_t>(group.front())));
  for (std::uint32_t index = 0; index < group.size(); ++index) {
    const auto r = static_cast<std::uint16_t>(group[index]);
    const CollectiveCall& call = call_of(meeting, r);
    if (call.kind == CollectiveKind::reduce && call.root != r) continue;
    if (all_written) ranks_[r].memory.storage(call.output.buffer).written.add({call.output.offset, call.output.offset + call.output.numel});
    else mark_written(r, index, call, written);
  }
}

// Which elements of the (gathered or reduced) whole are written. Offsets from the whole's start.
RangeSet Rendezvous::written_after(const Meeting& meeting, const CollectiveCall& first) {
  RangeSet whole;
  const bool gathers = first.kind == CollectiveKind::all_gather;
  const std::uint64_t numel = first.input.numel;
  const std::vector<std::uint32_t>& group = members(meeting);
  whole.add({0, gathers ? numel * group.size() : numel});
  for (std::uint32_t index = 0; index < group.size(); ++index) {
    const auto r = static_cast<std::uint16_t>(group[index]);
    if (first.kind == CollectiveKind::broadcast && r != first.root) continue;
    const Slice input = call_of(meeting, r).input;
    const std::uint64_t base = gathers ? index * numel : 0;
    const Storage& storage = ranks_[r].memory.storage(input.buffer);
    for (std::uint64_t at = input.offset; at < input.offset + numel;) {
      const auto gap = storage.live ? storage.written.first_gap({at, input.offset + numel}) : std::optional<Range>({at, input.offset + numel});
      if (!gap) break;
      whole.remove({gap->begin - input.offset + base, gap->end - input.offset + base});
      at = gap->end;
    }
  }
  return whole;
}

void Rendezvous::mark_written(std::uint16_t r, std::uint32_t index, const CollectiveCall& call, const RangeSet& whole) {
  const std::uint64_t base = call.kind == CollectiveKind::reduce_scatter ? index * call.output.numel : 0;
  RangeSet& written = ranks_[r].memory.storage(call.output.buffer).written;
  written.remove({call.output.offset, call.output.offset + call.output.numel});
  for (const Range& range : whole.ranges()) {
    const std::uint64_t begin = std::max(range.begin, base);
    const std::uint64_t end = std::min(range.end, base + call.output.numel);
    if (begin < end) written.add({begin - base + call.output.offset, end - base + call.output.offset});
  }
}

}  // namespace gradledger
