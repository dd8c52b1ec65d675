// What the coordinator says of calls: records for the sink, and texts for the ranks that are refused.
#include <algorithm>

#include "sim/base/hash.h"
#include "sim/producers/driver/coordinator.h"

namespace gradledger::driver {
namespace {

std::optional<CollectiveKind> kind_of(GroupCall call) {
  switch (call) {
    case GroupCall::all_reduce: return CollectiveKind::all_reduce;
    case GroupCall::reduce: return CollectiveKind::reduce;
    case GroupCall::reduce_scatter: return CollectiveKind::reduce_scatter;
    case GroupCall::all_gather: return CollectiveKind::all_gather;
    case GroupCall::broadcast: return CollectiveKind::broadcast;
    case GroupCall::gather:
    case GroupCall::scatter:
    case GroupCall::all_to_all:
    case GroupCall::barrier:
    case GroupCall::send:
    case GroupCall::receive: return std::nullopt;
  }
  return std::nullopt;
}

ReduceOp op_of(GroupOperator op) {
  switch (op) {
    case GroupOperator::none:
    case GroupOperator::sum: return ReduceOp::sum;
    case GroupOperator::avg: return ReduceOp::avg;
    case GroupOperator::max: return ReduceOp::max;
    case GroupOperator::min:
    case GroupOperator::product:
    case GroupOperator::band:
    case GroupOperator::bor:
    case GroupOperator::bxor: return ReduceOp::other;
  }
  return ReduceOp::other;
}

// uint8 for what has no Dtype.
Dtype dtype_of(GroupDtype dtype) {
  switch (dtype) {
    case GroupDtype::fp32: return Dtype::float32;
    case GroupDtype::bf16: return Dtype::bfloat16;
    case GroupDtype::fp16: return Dtype::float16;
    case GroupDtype::fp64: return Dtype::float64;
    case GroupDtype::int32: return Dtype::int32;
    case GroupDtype::int8:
    case GroupDtype::uint8:
    case GroupDtype::int16:
    case GroupDtype::int64:
    case GroupDtype::boolean:
    case GroupDtype::bytes: return Dtype::uint8;
  }
  return Dtype::uint8;
}

std::string when_and_what(const GroupRequest& request, const std::string& call) {
  return call + (request.event < 0 ? ", before the first event" : ", at event " + std::to_string(request.event));
}

}  // namespace

std::uint32_t group_number(const std::vector<std::uint32_t>& group, const std::string& tag, std::uint32_t world_size) {
  if (group.size() == world_size && tag.empty()) return 0;
  TraceHash hash;
  for (const std::uint32_t rank : group) hash.add(rank);
  hash.add_bytes(std::as_bytes(std::span(tag)));
  return static_cast<std::uint32_t>(hash.value() >> 32);
}

// ---- records --------------------------------------------------------------------------------------------------------------------------------

// The words say what a kind, operator or dtype of the record cannot.
CollectiveRecord Coordinator::record_of(std::uint32_t rank, const GroupRequest& request, const Line& line, std::uint64_t sequence) const {
  CollectiveRecord out;
  out.rank = rank;
  out.event = request.event < 0 ? 0 : static_cast<std::uint32_t>(request.event);
  out.group = line.number;
  out.sequence = static_cast<std::uint32_t>(sequence);
  out.kind = kind_of(request.kind).value_or(CollectiveKind::all_reduce);
  out.op = request.factor == 1 ? op_of(request.op) : ReduceOp::premultiplied_sum;
  out.factor = request.factor;
  out.purpose = purpose_of(request, model_numel_);
  out.dtype = dtype_of(request.dtype);
  out.numel = static_cast<std::uint32_t>(request.numel * (size_of(request.dtype) / gradledger::size_of(out.dtype)));
  out.root = has_root(request.kind) ? request.root : 0;
  out.in_words = call_text(request, static_cast<std::uint32_t>(ranks_.size()), model_numel_);
  return out;
}

void Coordinator::record(std::uint32_t rank, const GroupRequest& request, const Place& place) {
  if (!kind_of(request.kind)) return;
  CollectiveRecord out = record_of(rank, request, *place.line, place.sequence);
  if (request.event < 0) out.event = no_event;
  sink_.collective(out);
}

void Coordinator::report_mismatch(const char* what, const Line& line, const Meeting& meeting, std::uint64_t sequence) {
  failed_ = true;
  MismatchRecord record{what, {}};
  for (std::size_t slot = 0; slot < line.ranks.size(); ++slot) record.calls.push_back(record_of(line.ranks[slot], *meeting.calls[slot], line, sequence));
  sink_.mismatch(record);
}

// What the rank waits for; where it waits for nothing, its first call that nobody answered.
const Coordinator::Place* Coordinator::stuck_at(const Rank& rank) const {
  if (rank.state == State::waiting) return &rank.open.at(rank.waits_for);
  return rank.open.empty() ? nullptr : &rank.open.begin()->second;
}

void Coordinator::report_deadlock() {
  if (std::exchange(failed_, true)) return;
  const bool any_waits = std::any_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.state == State::waiting; });
  DeadlockRecord record;
  for (std::uint32_t r = 0; r < ranks_.size(); ++r) {
    const Rank& rank = ranks_[r];
    WaitingRank waiting{r, rank.last_event < 0 ? 0 : static_cast<std::uint32_t>(rank.last_event), std::nullopt, rank.state == State::idle};
    const Place* place = rank.state == State::waiting || !any_waits ? stuck_at(rank) : nullptr;
    if (place) {
      waiting.collective = record_of(r, *meeting_at(*place).calls[place->slot], *place->line, place->sequence);
      waiting.event = waiting.collective->event;
    }
    record.ranks.push_back(std::move(waiting));
  }
  sink_.deadlock(record);
}

// ---- texts ----------------------------------------------------------------------------------------------------------------------------------

std::string Coordinator::differing_calls(const char* what, const Line& line, const Meeting& meeting) const {
  std::string out = "the calls that meet here differ in " + std::string(what) + ": ";
  for (std::size_t slot = 0; slot < line.ranks.size(); ++slot) {
    const GroupRequest& call = *meeting.calls[slot];
    out += (slot == 0 ? "rank " : "; rank ") + std::to_string(line.ranks[slot]) + " calls ";
    out += when_and_what(call, call_text(call, static_cast<std::uint32_t>(ranks_.size()), model_numel_));
  }
  return out;
}

std::string Coordinator::deadlock_text() const {
  std::string out = "nobody can move any more: ";
  for (std::uint32_t r = 0; r < ranks_.size(); ++r) out += (r == 0 ? "" : "; ") + standstill_of(r);
  return out;
}

std::string Coordinator::standstill_of(std::uint32_t r) const {
  const Rank& rank = ranks_[r];
  std::string out = "rank " + std::to_string(r);
  if (rank.state == State::gone) return out + " is gone";
  const Place* place = stuck_at(rank);
  if (!place) return out + " has nothing left to do";
  const Meeting& meeting = meeting_at(*place);
  const GroupRequest& call = *meeting.calls[place->slot];
  out += (rank.state == State::waiting ? " waits in " : " has nothing left to do, and has asked for ");
  out += when_and_what(call, call_text(call, static_cast<std::uint32_t>(ranks_.size()), model_numel_)) + ", where";
  std::size_t missing = 0;
  for (std::size_t slot = 0; slot < meeting.calls.size(); ++slot)
    if (!meeting.calls[slot]) out += (missing++ == 0 ? " rank " : " and rank ") + std::to_string(place->line->ranks[slot]);
  return out + " never came";
}

}  // namespace gradledger::driver
