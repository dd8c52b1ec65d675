#include "search/streams/rank_states.h"

#include <algorithm>
#include <cstring>

#include "sim/base/hash.h"

namespace gradledger::search {

RankStates::RankStates(Rank& scratch, std::uint32_t rank, Operations& operations, Interner& contents)
    : scratch_(scratch), rank_(rank), operations_(operations), contents_(contents), control_(scratch.program), updated_(scratch.program.buffers.size(), 0) {
  const Program& program = scratch_.program;
  for (const UpdateCall& call : program.updates)
    for (const Slice& slice : {call.parameter, call.first_moment, call.second_moment})
      if (slice.buffer != no_index) updated_[slice.buffer] = 1;
  scratch_.memory.prepare(program.buffers);
  words_.assign(at_buffers, 0);
  std::fill_n(words_.begin() + at_stream, stream_count, nothing);
  for (const BufferDeclaration& buffer : program.buffers) {
    bytes_.assign(std::size_t{buffer.numel} * size_of(buffer.dtype), poison);
    poison_.push_back(contents_.intern(bytes_));
    words_.push_back(poison_.back());
  }
  progress_.head = program.first;
  close();
}

std::span<const std::uint32_t> RankStates::words(StateId state) const {
  const auto bytes = numbers_.of(state);
  return {reinterpret_cast<const std::uint32_t*>(bytes.data()), bytes.size() / sizeof(std::uint32_t)};
}

void RankStates::open(StateId state) {
  const auto known = words(state);
  words_.assign(known.begin(), known.end());
  progress_ = control_.progress(words_[0]);
}

StateId RankStates::close() {
  words_[0] = control_.number_of(progress_);
  const StateId state = numbers_.intern(std::as_bytes(std::span(words_)));
  if (state == states_.size()) {
    states_.emplace_back();
    states_.back().control = words_[0];
  }
  return state;
}

StateId RankStates::step(StateId state, Stream stream) {
  const auto s = static_cast<std::size_t>(stream);
  if (states_[state].next[s] != nothing) return states_[state].next[s];
  open(state);
  take(stream);
  const StateId next = close();
  states_[state].next[s] = next;
  return next;
}

RankStates::Settled RankStates::settle(StateId state, std::vector<Stream>* taken) {
  if (!taken && states_[state].settled.state != nothing) return states_[state].settled;
  open(state);
  Settled settled;
  for (std::size_t free; (free = control_.choices(control_.number_of(progress_)).first_free()) < stream_count;) {
    take(static_cast<Stream>(free));
    if (taken) taken->push_back(static_cast<Stream>(free));
    ++settled.steps;
  }
  settled.state = close();
  states_[state].settled = settled;
  return settled;
}

ContentId RankStates::contribution(StateId state, Stream stream) const { return words(state)[at_stream + static_cast<std::size_t>(stream)]; }

StateId RankStates::deliverable(StateId state, Stream stream, ContentId result) {
  open(state);
  Phase& phase = progress_.phase[static_cast<std::size_t>(stream)];
  expects(phase == Phase::contributed, "a result for a collective to which the rank did not contribute");
  phase = Phase::deliverable;
  words_[at_stream + static_cast<std::size_t>(stream)] = result;
  return close();
}

// ---- one step ---------------------------------------------------------------------------------------------------------------------------

void RankStates::take(Stream stream) {
  const auto s = static_cast<std::size_t>(stream);
  const std::uint32_t at = progress_.head[s];
  const Op& op = scratch_.program.ops[at];
  if (op.kind == OpKind::collective && progress_.phase[s] == Phase::none) {
    contribute(scratch_.program.collectives[op.index], stream);
    progress_.phase[s] = Phase::contributed;
    return;
  }
  if (op.kind == OpKind::collective) deliver(scratch_.program.collectives[op.index], stream);
  else run(op, at);
  progress_.phase[s] = Phase::none;
  progress_.head[s] = op.next;
}

void RankStates::contribute(const CollectiveCall& call, Stream stream) {
  const auto input = slice_of(call.input);
  bytes_.assign(input.begin(), input.end());
  words_[at_stream + static_cast<std::size_t>(stream)] = contents_.intern(bytes_);
}

void RankStates::deliver(const CollectiveCall& call, Stream stream) {
  std::uint32_t& result = words_[at_stream + static_cast<std::size_t>(stream)];
  if (result != nothing && call.output.numel > 0) {
    const auto written = contents_.of(result);
    const auto before = contents_.of(words_[at_buffers + call.output.buffer]);
    const std::size_t offset = std::size_t{call.output.offset} * size_of(scratch_.program.buffers[call.output.buffer].dtype);
    expects(offset + written.size() <= before.size(), "a collective writes outside its buffer");
    bytes_.assign(before.begin(), before.end());
    std::memcpy(bytes_.data() + offset, written.data(), written.size());
    if (call.kind == CollectiveKind::all_gather && call.input.buffer == call.output.buffer) {  // in place: its own part stays as it is
      const std::size_t width = size_of(scratch_.program.buffers[call.input.buffer].dtype);
      std::memcpy(bytes_.data() + call.input.offset * width, before.data() + call.input.offset * width, call.input.numel * width);
    }
    words_[at_buffers + call.output.buffer] = contents_.intern(bytes_);
  }
  result = nothing;
}

void RankStates::run(const Op& op, std::uint32_t at) {
  switch (op.kind) {
    case OpKind::allocate:  // the memory is what its release left
    case OpKind::send:
    case OpKind::receive:
    case OpKind::record:
    case OpKind::wait:
    case OpKind::synchronize:
    case OpKind::observe:
    case OpKind::end_event: return;
    case OpKind::release: words_[at_buffers + op.target.buffer] = poison_[op.target.buffer]; return;
    case OpKind::read:
    case OpKind::report:
      if (op.source.buffer != no_index) see_slice(at, op.source);
      return;
    case OpKind::sgd:
    case OpKind::adam: see_slice(at, scratch_.program.updates[op.index].gradient); break;
    default: break;
  }
  const std::vector<Access> touched = accesses(scratch_.program, 2 * at);
  for (const Access& access : touched) load(access.slice.buffer);
  operations_.execute(op, at, scratch_, rank_);
  for (const Access& access : touched)
    if (access.writes) store(access.slice.buffer);
}

void RankStates::load(BufferId buffer) {
  Storage& storage = scratch_.memory.storage(buffer);
  const auto contents = contents_.of(words_[at_buffers + buffer]);
  storage.bytes.assign(contents.begin(), contents.end());
  storage.live = true;
  storage.written.add({0, scratch_.program.buffers[buffer].numel});  // poison that is read is a value here
}

void RankStates::store(BufferId buffer) { words_[at_buffers + buffer] = contents_.intern(scratch_.memory.storage(buffer).bytes); }

std::span<const std::byte> RankStates::slice_of(Slice slice) const {
  const auto contents = contents_.of(words_[at_buffers + slice.buffer]);
  const std::size_t width = size_of(scratch_.program.buffers[slice.buffer].dtype);
  expects((std::size_t{slice.offset} + slice.numel) * width <= contents.size(), "an operation reaches outside its buffer");
  return contents.subspan(slice.offset * width, slice.numel * width);
}

// ---- what is seen -----------------------------------------------------------------------------------------------------------------------

void RankStates::see_slice(std::uint32_t at, Slice slice) { see(hash_keys({at, slice.buffer, slice.offset}), slice_of(slice)); }

// Two sums, so that what streams see in another order is the same.
void RankStates::see(std::uint64_t key, std::span<const std::byte> bytes) {
  for (const std::uint64_t half : {0u, 1u}) {
    TraceHash hash;
    hash.add(hash_keys({key, half}));
    hash.add_bytes(bytes);
    std::uint64_t sum;
    std::memcpy(&sum, &words_[at_seen + 2 * half], sizeof sum);
    sum += mix(hash.value());
    std::memcpy(&words_[at_seen + 2 * half], &sum, sizeof sum);
  }
}

RankStates::Hashes RankStates::hashes(StateId state) const {
  const auto known = words(state);
  TraceHash values, memory;
  for (std::size_t word = at_seen; word < at_buffers; ++word) values.add(known[word]);
  for (std::size_t buffer = 0; buffer < updated_.size(); ++buffer) {
    const auto contents = contents_.of(known[at_buffers + buffer]);
    if (updated_[buffer] != 0) values.add_bytes(contents);
    memory.add_bytes(contents);
  }
  memory.add(values.value());
  return {mix(values.value() ^ rank_), mix(memory.value() ^ rank_)};
}

}  // namespace gradledger::search
