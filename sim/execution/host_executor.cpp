#include "sim/execution/host_executor.h"

#include <algorithm>
#include <map>
#include <utility>

#include "sim/base/hash.h"
#include "sim/execution/operations.h"
#include "sim/execution/policy.h"

namespace gradledger {

// One run: the scheduler over ranks and streams, the meeting point of collectives, and the snapshots.
class HostExecutor::Run {
 public:
  Run(HostExecutor& executor, const GradientSource& source, const RunOptions& options, TraceSink& sink)
      : executor_(executor), ranks_(executor.ranks_), options_(options), sink_(sink), operations_(source, sink), policy_(options.schedule) {}

  RunSummary go() {
    for (std::uint16_t r = 0; r < ranks_.size(); ++r) runnable_.push_back(r);
    while (!runnable_.empty() && !mismatched_) {
      const std::size_t pick = policy_.pick(runnable_);
      const std::uint16_t r = runnable_[pick];
      runnable_.erase(runnable_.begin() + static_cast<std::ptrdiff_t>(pick));
      hash_.add(r);
      advance(r);
    }
    const bool ended = std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.finished; });
    if (!ended && !mismatched_) report_deadlock();
    summary_.completed = ended && std::none_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.error.has_value(); });
    summary_.trace_hash = hash_.value();
    summary_.replay_diverged = policy_.replay_diverged();
    summary_.decisions = policy_.take_decisions();
    return std::move(summary_);
  }

 private:
  // A collective that some ranks have reached.
  struct Meeting {
    std::vector<std::uint32_t> call;    // by rank: index of its call, or no_index
    std::vector<Stream> stream;         // by rank
    std::vector<std::uint32_t> event;   // by rank
    std::uint32_t arrived = 0;
  };

  // ---- one rank, until it waits for others or ends -------------------------------------------------------------------------------

  void advance(std::uint16_t r) {
    Rank& rank = ranks_[r];
    while (!mismatched_) {
      std::array<std::uint16_t, stream_count> enabled;
      std::size_t count = 0;
      for (std::uint16_t s = 0; s < stream_count; ++s)
        if (ready(rank, static_cast<Stream>(s))) enabled[count++] = s;
      if (count == 0) {
        if (!rank.emitted_all && ran_dry(rank) && !waits_for_value(rank)) {
          emit_next_event(r);
          continue;
        }
        if (rank.emitted_all && ran_dry(rank) && !rank.finished) finish(r);
        return;
      }
      const std::size_t pick = policy_.pick({enabled.data(), count});
      execute(r, static_cast<Stream>(enabled[pick]));
    }
  }

  static bool ran_dry(const Rank& rank) {
    return std::all_of(rank.head.begin(), rank.head.end(), [](std::uint32_t head) { return head == no_index; });
  }

  static bool waits_for_value(const Rank& rank) { return rank.engine && rank.engine->suspended(); }

  // The host has passed every operation before its own head; what lies beyond is not enqueued yet.
  static bool enqueued(const Rank& rank, std::uint32_t op) { return rank.head[0] == no_index || op < rank.head[0]; }

  static bool ready(const Rank& rank, Stream stream) {
    const auto s = static_cast<std::size_t>(stream);
    const std::uint32_t head = rank.head[s];
    if (head == no_index || rank.waits_for_peers[s]) return false;
    const Op& op = rank.program.ops[head];
    if (op.kind == OpKind::wait) return (stream == Stream::host || enqueued(rank, head)) && rank.recorded[op.index];
    if (stream != Stream::host) return enqueued(rank, head);
    if (op.kind != OpKind::synchronize) return true;
    for (std::size_t other = 1; other < stream_count; ++other)
      if (rank.head[other] != no_index && rank.head[other] < head) return false;
    return true;
  }

  void execute(std::uint16_t r, Stream stream) {
    Rank& rank = ranks_[r];
    const auto s = static_cast<std::size_t>(stream);
    const std::uint32_t at = rank.head[s];
    const Op op = rank.program.ops[at];  // a copy: emission may move the program
    rank.event = op.event;
    ++summary_.operations;
    hash_.add((std::uint64_t{r} << 48) ^ (std::uint64_t{at} << 8) ^ static_cast<std::uint64_t>(op.kind));
    if (op.kind == OpKind::collective) {
      rank.waits_for_peers[s] = true;
      return arrive(r, stream, op);
    }
    rank.head[s] = op.next;
    switch (op.kind) {
      case OpKind::record: rank.recorded[op.index] = 1; break;
      case OpKind::wait:
      case OpKind::synchronize: break;
      case OpKind::read: resume(r, op); break;
      case OpKind::observe: observe(r, op); break;
      case OpKind::metric: sink_.metric({r, op.event, rank.program.metrics[op.index], scalar(r, op.source, op.event, "a metric") * op.scalar}); break;
      case OpKind::end_event: sink_.event_done(r, op.event); break;
      default: operations_.execute(op, rank, r);
    }
    if (op.kind == OpKind::allocate) summary_.bytes_peak = std::max(summary_.bytes_peak, bytes_held());
  }

  std::uint64_t bytes_held() const {
    std::uint64_t sum = 0;
    for (const Rank& rank : ranks_) sum += rank.memory.bytes_held();
    return sum;
  }

  void finish(std::uint16_t r) {
    Rank& rank = ranks_[r];
    rank.finished = true;
    if (rank.error) sink_.engine_error(*rank.error);
  }

  // ---- the engine writes, event by event -----------------------------------------------------------------------------------------

  template <class Emit>
  void emit(std::uint16_t r, std::uint32_t event, Emit&& body) {
    Rank& rank = ranks_[r];
    const auto last_before = rank.program.last;
    ProgramWriter writer(rank.program);
    writer.begin_event(event);
    try {
      body(*rank.engine, writer);
      if (!rank.engine->suspended()) end_event(*rank.engine, writer);
    } catch (const FrameworkError& error) {
      rank.error = EngineErrorRecord{r, event, error.type, error.message};
      rank.emitted_all = true;
    }
    rank.see_appended(last_before);
  }

  void emit_next_event(std::uint16_t r) {
    Rank& rank = ranks_[r];
    const std::vector<Event>& events = executor_.timeline_.events;
    while (rank.next_event < events.size() && !events[rank.next_event].runs_on(r)) ++rank.next_event;
    if (rank.next_event >= events.size()) {
      rank.emitted_all = true;
      return;
    }
    const std::uint32_t event = rank.next_event++;
    emit(r, event, [&](Engine& engine, ProgramWriter& writer) { engine.handle(events[event], writer); });
  }

  void end_event(Engine& engine, ProgramWriter& writer) {
    if (options_.observe_events) {
      writer.synchronize();
      engine.observe(writer);
    }
    writer.end_event();
  }

  void resume(std::uint16_t r, const Op& op) {
    const double value = scalar(r, op.source, op.event, "a host decision");
    emit(r, op.event, [&](Engine& engine, ProgramWriter& writer) { engine.resume(value, writer); });
  }

  double scalar(std::uint16_t r, Slice slice, std::uint32_t event, const char* reader) {
    Rank& rank = ranks_[r];
    operations_.require_written(rank, r, event, slice, reader);
    const Dtype dtype = rank.program.buffers[slice.buffer].dtype;
    const std::byte* data = rank.memory.at(slice, dtype);
    if (dtype == Dtype::uint8) return static_cast<double>(std::to_integer<unsigned>(*data));
    if (dtype == Dtype::float64) return *reinterpret_cast<const double*>(data);
    double value = 0;
    numeric::convert(Dtype::float64, &value, dtype, data, 1);
    return value;
  }

  // ---- collectives ----------------------------------------------------------------------------------------------------------------

  void arrive(std::uint16_t r, Stream stream, const Op& op) {
    const CollectiveCall& call = ranks_[r].program.collectives[op.index];
    sink_.collective(record_of(r, op.index, op.event));
    Meeting& meeting = meetings_[{call.group, call.sequence}];
    if (meeting.arrived == 0) {
      meeting.call.assign(ranks_.size(), no_index);
      meeting.stream.assign(ranks_.size(), Stream::host);
      meeting.event.assign(ranks_.size(), 0);
    }
    meeting.call[r] = op.index;
    meeting.stream[r] = stream;
    meeting.event[r] = op.event;
    if (++meeting.arrived < ranks_.size()) return;
    const Meeting complete = std::move(meeting);
    meetings_.erase({call.group, call.sequence});
    if (const char* what = misfit(complete)) return report_mismatch(complete, what);
    reduce(complete);
    for (std::uint16_t peer = 0; peer < ranks_.size(); ++peer) {
      const auto s = static_cast<std::size_t>(complete.stream[peer]);
      ranks_[peer].waits_for_peers[s] = false;
      ranks_[peer].head[s] = ranks_[peer].program.ops[ranks_[peer].head[s]].next;
      if (peer != r) make_runnable(peer);
    }
  }

  void make_runnable(std::uint16_t r) {
    const auto at = std::lower_bound(runnable_.begin(), runnable_.end(), r);
    if (at == runnable_.end() || *at != r) runnable_.insert(at, r);
  }

  CollectiveRecord record_of(std::uint16_t r, std::uint32_t index, std::uint32_t event) const {
    const CollectiveCall& call = ranks_[r].program.collectives[index];
    const Dtype dtype = ranks_[r].program.buffers[call.input.buffer].dtype;
    return {r, event, call.group, call.sequence, call.kind, call.op, call.purpose, dtype, call.input.numel, call.root};
  }

  const char* misfit(const Meeting& meeting) const {
    const CollectiveRecord first = record_of(0, meeting.call[0], 0);
    for (std::uint16_t r = 1; r < ranks_.size(); ++r) {
      const CollectiveRecord other = record_of(r, meeting.call[r], 0);
      if (other.kind != first.kind) return "kind";
      if (other.dtype != first.dtype) return "dtype";
      if (other.numel != first.numel) return "size";
      if (other.op != first.op) return "operator";
      if (other.root != first.root) return "root";
    }
    return nullptr;
  }

  void reduce(const Meeting& meeting) {
    const CollectiveCall& first = ranks_[0].program.collectives[meeting.call[0]];
    const Dtype dtype = ranks_[0].program.buffers[first.input.buffer].dtype;
    std::vector<CollectiveBuffers> buffers;
    for (std::uint16_t r = 0; r < ranks_.size(); ++r) {
      const CollectiveCall& call = ranks_[r].program.collectives[meeting.call[r]];
      buffers.push_back({ranks_[r].memory.at(call.input, dtype), ranks_[r].memory.at(call.output, dtype)});
    }
    const RangeSet written = written_after(meeting, first);
    run_collective(first.kind, first.op, dtype, first.input.numel, first.root, executor_.arithmetic_, buffers);
    for (std::uint16_t r = 0; r < ranks_.size(); ++r) mark_written(meeting, r, written);
  }

  // Which elements of the (gathered or reduced) whole are written: where every contributor's are. Offsets from the whole's start.
  RangeSet written_after(const Meeting& meeting, const CollectiveCall& first) {
    RangeSet whole;
    const bool gathers = first.kind == CollectiveKind::all_gather;
    const std::uint32_t numel = first.input.numel;
    if (!gathers) whole.add({0, numel});
    for (std::uint16_t r = 0; r < ranks_.size(); ++r) {
      if (first.kind == CollectiveKind::broadcast && r != first.root) continue;
      const Slice input = ranks_[r].program.collectives[meeting.call[r]].input;
      const std::uint32_t base = gathers ? r * numel : 0;
      if (gathers) whole.add({base, base + numel});
      const Storage& storage = ranks_[r].memory.storage(input.buffer);
      for (std::uint32_t at = input.offset; at < input.offset + numel;) {
        const auto gap = storage.live ? storage.written.first_gap({at, input.offset + numel}) : std::optional<Range>({at, input.offset + numel});
        if (!gap) break;
        whole.remove({gap->begin - input.offset + base, gap->end - input.offset + base});
        at = gap->end;
      }
    }
    return whole;
  }

  void mark_written(const Meeting& meeting, std::uint16_t r, const RangeSet& whole) {
    const CollectiveCall& call = ranks_[r].program.collectives[meeting.call[r]];
    if (call.kind == CollectiveKind::reduce && call.root != r) return;
    const std::uint32_t base = call.kind == CollectiveKind::reduce_scatter ? r * call.output.numel : 0;
    RangeSet& written = ranks_[r].memory.storage(call.output.buffer).written;
    written.remove({call.output.offset, call.output.offset + call.output.numel});
    for (const Range& range : whole.ranges()) {
      const std::uint32_t begin = std::max(range.begin, base);
      const std::uint32_t end = std::min(range.end, base + call.output.numel);
      if (begin < end) written.add({begin - base + call.output.offset, end - base + call.output.offset});
    }
  }

  // ---- what went wrong --------------------------------------------------------------------------------------------------------------

  void report_mismatch(const Meeting& meeting, const char* what) {
    mismatched_ = true;
    MismatchRecord record{what, {}};
    for (std::uint16_t r = 0; r < ranks_.size(); ++r) record.calls.push_back(record_of(r, meeting.call[r], meeting.event[r]));
    sink_.mismatch(record);
  }

  void report_deadlock() {
    DeadlockRecord record;
    for (std::uint16_t r = 0; r < ranks_.size(); ++r) {
      WaitingRank waiting{r, ranks_[r].event, std::nullopt, ranks_[r].finished};
      for (const auto& [key, meeting] : meetings_)
        if (meeting.call[r] != no_index && !waiting.collective) {
          waiting.collective = record_of(r, meeting.call[r], meeting.event[r]);
          waiting.event = meeting.event[r];
        }
      record.ranks.push_back(std::move(waiting));
    }
    sink_.deadlock(record);
  }

  // ---- snapshots --------------------------------------------------------------------------------------------------------------------

  void observe(std::uint16_t r, const Op& op) {
    Rank& rank = ranks_[r];
    const View& view = rank.program.views[op.index];
    pieces_.clear();
    TraceHash values;
    values.add((std::uint64_t{r} << 32) | op.event);
    for (const ViewPiece& piece : view.pieces) {
      if (piece.parameter >= 0 && op.role != Role::scratch) operations_.require_written(rank, r, op.event, piece.slice, "a snapshot");
      const Dtype dtype = rank.program.buffers[piece.slice.buffer].dtype;
      const std::byte* data = rank.memory.at(piece.slice, dtype);
      pieces_.push_back({piece.parameter, piece.parameter_offset, piece.slice.numel, dtype, data});
      if (piece.parameter >= 0) values.add_bytes({data, piece.slice.numel * std::size_t{size_of(dtype)}});
    }
    hash_.add(values.value());
    summary_.value_hash += mix(values.value() ^ op.index);  // order of ranks and buffers does not matter
    sink_.observe({r, op.event, op.flag != 0, view.name, op.role, op.scalar, pieces_});
  }

  HostExecutor& executor_;
  std::vector<Rank>& ranks_;
  const RunOptions& options_;
  TraceSink& sink_;
  Operations operations_;
  SchedulePolicy policy_;
  TraceHash hash_;
  RunSummary summary_;
  std::vector<std::uint16_t> runnable_;  // sorted
  std::map<std::pair<std::uint32_t, std::uint32_t>, Meeting> meetings_;  // by group and sequence number
  std::vector<ObservedPiece> pieces_;
  bool mismatched_ = false;
};

HostExecutor::HostExecutor(const Scenario& scenario, const Timeline& timeline, CollectiveArithmetic arithmetic)
    : scenario_(scenario), timeline_(timeline), arithmetic_(arithmetic) {}

HostExecutor::~HostExecutor() = default;

RunSummary HostExecutor::run(const GradientSource& source, const RunOptions& options, TraceSink& sink) {
  if (recorded_ && options.linear && recorded_observes_ == options.observe_events) {
    for (Rank& rank : ranks_) rank.rewind();
  } else {
    const auto behaviour = resolve_behaviour(scenario_.engine.as_of);
    expects(behaviour.ok(), "a scenario runs whose as_of was not checked");
    ranks_.clear();
    ranks_.resize(scenario_.world_size);
    for (std::uint32_t r = 0; r < scenario_.world_size; ++r) {
      Rank& rank = ranks_[r];
      rank.engine = make_engine({&scenario_, &timeline_, *behaviour, r, options.linear});
      ProgramWriter writer(rank.program);
      rank.engine->initialise(writer);
      rank.rewind();
    }
  }
  RunSummary summary = Run(*this, source, options, sink).go();
  // Complete programs can run again: nothing in them depended on a value.
  recorded_ = options.linear && std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.emitted_all && rank.finished; });
  recorded_observes_ = options.observe_events;
  return summary;
}

}  // namespace gradledger
