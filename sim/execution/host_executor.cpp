#include "sim/execution/host_executor.h"

#include <algorithm>
#include <utility>

#include "sim/base/hash.h"
#include "sim/execution/alike_programs.h"
#include "sim/execution/checkpoint.h"
#include "sim/execution/enabled.h"
#include "sim/execution/happens_before.h"
#include "sim/execution/host_autograd.h"
#include "sim/execution/host_reader.h"
#include "sim/execution/operations.h"
#include "sim/execution/policy.h"
#include "sim/execution/reduction_log.h"
#include "sim/execution/rendezvous.h"
#include "sim/execution/symbolic/steady_rounds.h"
#include "sim/execution/symbolic/symbolic_memory.h"
#include "sim/scenario/layout.h"
#include "sim/frameworks/framework.h"
#include "sim/trace/repeated_memory.h"

namespace gradledger {

// One run: the scheduler over ranks and streams, and the snapshots.
class HostExecutor::Run {
 public:
  Run(HostExecutor& executor, const GradientSource& source, const RunOptions& options, TraceSink& sink, bool replays)
      : executor_(executor),
        ranks_(executor.ranks_),
        options_(options),
        recorder_(sink),
        sink_(recorder_),
        devices_(options.dry ? nullptr : executor.devices_),
        weights_(options.weights ? std::make_unique<SymbolicMemory>(executor.scenario_, executor.timeline_) : nullptr),
        operations_(source, recorder_, options.dry || options.weights, options.wide, devices_),
        reader_(ranks_, operations_, devices_, weights_.get(), recorder_),
        rendezvous_(ranks_, process_groups(executor.scenario_), executor.arithmetic_),
        reductions_(ranks_, rendezvous_, recorder_),
        policy_(options.schedule),
        runnable_(executor.ranks_.size()),
        replays_(replays),
        lets_go_(options.once && std::none_of(executor.timeline_.events.begin(), executor.timeline_.events.end(), [](const Event& e) { return e.is<events::Restore>(); })),
        in_order_(options.schedule.policy == Schedule::Policy::in_order) {
    operations_.divide_by(executor.division_);
    if (lets_go_ && options.check_streams) alike_.emplace(ranks_);
    if (!weights_ || !lets_go_ || !dynamic_cast<const NeedsNoRepeatedMemory*>(&sink)) return;
    auto rounds = rounds_of(executor.scenario_, executor.timeline_, SteadyRounds::rounds_min);
    if (!rounds.empty()) rounds_.emplace(ranks_, *weights_, recorder_, std::move(rounds), alike_ ? &*alike_ : nullptr);
  }

  RunSummary go() {
    for (std::uint32_t r = 0; r < ranks_.size(); ++r) {
      runnable_.insert(static_cast<std::uint16_t>(r));
      bytes_held_ += ranks_[r].memory.bytes_held();
      if (weights_) weights_->prepare(r, ranks_[r].program);
      if (alike_) alike_->begin(r);
    }
    do {
      while (!runnable_.empty() && !mismatched_) {
        const std::uint16_t r = policy_.pick(runnable_);
        runnable_.erase(r);
        hash_.add(r);
        advance(r);
      }
    } while (!mismatched_ && passes_barrier());
    if (alike_) alike_->catch_up(true);
    const bool ended = std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.finished; });
    if (!ended && !mismatched_) sink_.deadlock(rendezvous_.deadlock());
    summary_.completed = ended && std::none_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return !rank.errors.empty(); });
    summary_.trace_hash = hash_.value();
    summary_.replay_diverged = policy_.replay_diverged();
    summary_.decisions = policy_.take_decisions();
    return std::move(summary_);
  }

  std::vector<RaceRecord> races(std::uint32_t r) const { return alike_ ? alike_->races(r) : stream_races(ranks_[r].program, r); }

 private:
  // ---- rounds that repeat --------------------------------------------------------------------------------------------------------

  // All ranks stand still. Whether any may go on.
  bool passes_barrier() {
    if (!rounds_ || rounds_->barrier() == never) return false;
    const auto at_rest = [&](const Rank& rank) { return rank.next_event == rounds_->barrier() && ran_dry(rank) && rank.errors.empty() && !waits_for_value(rank); };
    if (alike_) alike_->catch_up(false);
    const bool quiet = rendezvous_.idle() && std::all_of(ranks_.begin(), ranks_.end(), at_rest) && !(alike_ && alike_->has_races());
    const std::uint64_t in_round = summary_.operations - operations_at_barrier_, passed = rounds_->arrive(quiet, bytes_held_);
    hash_.add(passed);
    summary_.operations += passed * in_round;
    operations_at_barrier_ = summary_.operations;
    for (std::uint32_t r = 0; r < ranks_.size(); ++r)
      if (!ranks_[r].finished) runnable_.insert(static_cast<std::uint16_t>(r));
    return true;
  }

  std::uint32_t barrier() const { return rounds_ ? rounds_->barrier() : never; }

  // ---- one rank, until it waits for others or ends -------------------------------------------------------------------------------

  // Ranks commute between collectives, so a rank goes on as long as it can; the choice that matters is among its streams.
  void advance(std::uint16_t r) {
    Rank& rank = ranks_[r];
    while (!mismatched_) {
      // The host goes ahead of the device until something makes it wait.
      while (rank.head[0] == no_index && !rank.emitted_all && !waits_for_value(rank) && rank.next_event < barrier()) emit_next_event(r);
      std::array<std::uint16_t, stream_count> enabled;
      const std::size_t count = enabled_streams(rank, enabled);
      if (count == 0) {
        if (rank.emitted_all && ran_dry(rank) && !rank.finished) finish(r);
        return;
      }
      const auto stream = static_cast<Stream>(enabled[policy_.pick({enabled.data(), count})]);
      const std::uint64_t before = summary_.operations;
      // A lone device stream runs on while nothing that it does can enable another.
      if (count == 1 && stream != Stream::host && computes(rank.program.ops[rank.head[static_cast<std::size_t>(stream)]])) run_on(r, stream);
      else execute(r, stream);
      hash_.add((std::uint64_t{r} << 48) ^ (static_cast<std::uint64_t>(stream) << 40) ^ (summary_.operations - before));
      if (options_.log_decisions) summary_.decision_hashes.push_back(hash_.value());
    }
  }

  std::size_t enabled_streams(const Rank& rank, std::array<std::uint16_t, stream_count>& enabled) const {
    std::size_t count = 0;
    if (in_order_) {
      const auto next = std::min_element(rank.head.begin(), rank.head.end()) - rank.head.begin();  // no_index is the highest
      if (ready(rank, static_cast<Stream>(next))) enabled[count++] = static_cast<std::uint16_t>(next);
      return count;
    }
    for (std::uint16_t s = 0; s < stream_count; ++s)
      if (rank.head[s] != no_index && ready(rank, static_cast<Stream>(s))) enabled[count++] = s;
    return count;
  }

  // Storage and arithmetic, not collectives, stream order or host work.
  static bool computes(const Op& op) { return op.kind <= OpKind::adam; }

  void run_on(std::uint16_t r, Stream stream) {
    Rank& rank = ranks_[r];
    const auto s = static_cast<std::size_t>(stream);
    while (true) {
      const std::uint32_t head = rank.head[s];
      if (head == no_index || rank.waits_for_peers[s] || !enqueued(rank.head, head)) return;
      const Op& op = rank.program.ops[head];
      if (!computes(op)) return;
      rank.event = op.event;
      rank.head[s] = op.next;
      ++summary_.operations;
      const bool next_in_order = op.next == head + 1;
      execute_operation(op, head, rank, r);
      if (in_order_ && !next_in_order) return;
    }
  }

  static bool ran_dry(const Rank& rank) {
    return std::all_of(rank.head.begin(), rank.head.end(), [](std::uint32_t head) { return head == no_index; });
  }

  static bool waits_for_value(const Rank& rank) { return rank.engine && rank.engine->suspended(); }

  static bool ready(const Rank& rank, Stream stream) {
    return !rank.waits_for_peers[static_cast<std::size_t>(stream)] && may_run(rank.program, rank.head, stream, [&](std::uint32_t e) { return rank.recorded[e] != 0; });
  }

  void execute(std::uint16_t r, Stream stream) {
    Rank& rank = ranks_[r];
    const auto s = static_cast<std::size_t>(stream);
    const std::uint32_t at = rank.head[s];
    const Op& op = rank.program.ops[at];
    rank.event = op.event;
    ++summary_.operations;
    if (op.kind == OpKind::collective) {
      rank.waits_for_peers[s] = true;
      return arrive(r, stream, op);
    }
    rank.head[s] = op.next;
    switch (op.kind) {
      case OpKind::record: rank.recorded[op.index] = 1; [[fallthrough]];
      case OpKind::wait:
      case OpKind::synchronize:
        if (devices_) devices_->enqueue(r, command_of(op, rank.program), {});
        break;
      case OpKind::read:
        if (!replays_) resume(r, Op(op));  // what follows from the value is in the program; emission may move the program
        break;
      case OpKind::observe: observe(r, op); break;
      case OpKind::report: {
        if (options_.dry || (weights_ && op.source.buffer != no_index)) break;  // weights have no norms
        const double value = op.source.buffer == no_index ? op.scalar : reader_.scalar(r, op, "a report") * op.scalar;
        sink_.step_fact({r, op.event, static_cast<StepFact>(op.index), value});
        break;
      }
      case OpKind::end_event: sink_.event_done(r, op.event); break;
      default: execute_operation(op, at, rank, r);
    }
  }

  void execute_operation(const Op& op, std::uint32_t at, Rank& rank, std::uint16_t r) {
    const std::uint64_t before = rank.memory.bytes_held();
    operations_.execute(op, at, rank, r);
    if (weights_) weights_->execute(op, r, rank.program);
    bytes_held_ += rank.memory.bytes_held() - before;
    summary_.bytes_peak = std::max(summary_.bytes_peak, bytes_held_);
  }

  void finish(std::uint16_t r) {
    Rank& rank = ranks_[r];
    rank.finished = true;
    for (const EngineErrorRecord& error : rank.errors) sink_.engine_error(error);
  }

  // ---- the engine writes, event by event -----------------------------------------------------------------------------------------

  template <class Emit>
  void emit(std::uint16_t r, std::uint32_t event, Emit&& body) {
    Rank& rank = ranks_[r];
    if (lets_go_) rank.forget_what_ran(alike_ ? alike_->needed_from(r) : no_index);
    const auto last_before = rank.program.last;
    const std::uint64_t bytes_before = bytes_of_program(r);
    const auto written_before = static_cast<std::uint32_t>(rank.program.ops.size());
    if (lets_go_) rank.program.ops.reserve_more(written_most_);
    ProgramWriter writer(rank.program);
    writer.begin_event(event);
    try {
      body(*rank.engine, writer);
      if (!rank.engine->suspended()) end_event(*rank.engine, writer);
    } catch (const FrameworkError& error) {
      rank.errors.push_back({r, event, error.type, error.message});
      if (executor_.scenario_.after_error == AfterError::go_on) end_event(*rank.engine, writer);
      else rank.emitted_all = true;
    }
    written_most_ = std::max(written_most_, rank.program.ops.size() - written_before);
    if (alike_) alike_->wrote(r);
    if (rounds_ && !(alike_ && alike_->follows(r))) rounds_->wrote(r, rank.program, written_before);
    rank.see_appended(last_before);
    if (weights_) weights_->prepare(r, rank.program);
    program_bytes_ += bytes_of_program(r) - bytes_before;
    if (program_bytes_ > executor_.program_bytes_max_) throw ProgramsTooLarge(executor_.program_bytes_max_);
  }

  std::uint64_t bytes_of_program(std::uint16_t r) const { return ranks_[r].program.bytes() + (alike_ ? alike_->bytes(r) : 0); }

  void emit_next_event(std::uint16_t r) {
    Rank& rank = ranks_[r];
    const std::vector<Event>& events = executor_.timeline_.events;
    while (rank.next_event < events.size() && !events[rank.next_event].runs_on(r)) ++rank.next_event;
    if (rank.next_event >= events.size()) {
      rank.emitted_all = true;
      return;
    }
    const std::uint32_t event = rank.next_event++;
    if (events[event].is<events::Restore>()) return restart(r, event);
    emit(r, event, [&](Engine& engine, ProgramWriter& writer) { engine.handle(events[event], writer); });
  }

  void restart(std::uint16_t r, std::uint32_t event) {
    Rank& rank = ranks_[r];
    std::unique_ptr<Engine> fresh = executor_.make_engine_of(r, options_.linear);
    emit(r, event, [&](Engine& old, ProgramWriter& writer) {
      load_checkpoint(executor_.scenario_, rank.program, old, *fresh, writer);
      rank.engine = std::move(fresh);
    });
  }

  void end_event(Engine& engine, ProgramWriter& writer) {
    if (options_.observe_events) {
      writer.synchronize(true);
      engine.observe(writer);
    }
    writer.end_event();
  }

  void resume(std::uint16_t r, const Op& op) {
    const double value = options_.dry ? 0.0 : reader_.scalar(r, op, "a host decision");  // dry: no step is skipped
    emit(r, op.event, [&](Engine& engine, ProgramWriter& writer) { engine.resume(value, writer); });
  }

  void observe(std::uint16_t r, const Op& op) {
    if (options_.dry) return;
    const std::uint64_t values = reader_.show(r, op);
    if (weights_) return;
    hash_.add(values);
    summary_.value_hash += mix(values ^ op.index);  // order of ranks and buffers does not matter
  }

  // ---- collectives ----------------------------------------------------------------------------------------------------------------

  void arrive(std::uint16_t r, Stream stream, const Op& op) {
    sink_.collective(rendezvous_.record_of(r, op.index, op.event));
    std::optional<Meeting> complete = rendezvous_.arrive(r, stream, op);
    if (!complete) return;
    if (const char* what = rendezvous_.misfit(*complete)) return report_mismatch(*complete, what);
    const bool shown = options_.show_reductions && !options_.dry && !weights_ && !devices_;
    if (shown) reductions_.before(*complete);
    if (weights_) rendezvous_.perform(*complete, *weights_);
    else if (!options_.dry) rendezvous_.perform(*complete, devices_);
    if (shown) reductions_.after(*complete);
    for (std::uint32_t member : rendezvous_.members(*complete)) {
      const auto peer = static_cast<std::uint16_t>(member);
      const auto s = static_cast<std::size_t>(complete->rank[peer].stream);
      ranks_[peer].waits_for_peers[s] = false;
      ranks_[peer].head[s] = ranks_[peer].program.ops[ranks_[peer].head[s]].next;
      if (peer != r) runnable_.insert(peer);
    }
    rendezvous_.recycle(std::move(*complete));
  }

  // ---- what went wrong --------------------------------------------------------------------------------------------------------------

  void report_mismatch(const Meeting& meeting, const char* what) {
    mismatched_ = true;
    sink_.mismatch(rendezvous_.mismatch(meeting, what));
  }

  HostExecutor& executor_;
  std::vector<Rank>& ranks_;
  const RunOptions& options_;
  RoundRecorder recorder_;
  TraceSink& sink_;
  Devices* const devices_;
  const std::unique_ptr<SymbolicMemory> weights_;
  Operations operations_;
  HostReader reader_;
  Rendezvous rendezvous_;
  ReductionLog reductions_;
  std::optional<AlikePrograms> alike_;  // where programs are let go and streams are checked
  std::optional<SteadyRounds> rounds_;  // that a script repeats
  std::uint64_t operations_at_barrier_ = 0;
  SchedulePolicy policy_;
  TraceHash hash_;
  RunSummary summary_;
  RunnableRanks runnable_;
  std::uint64_t bytes_held_ = 0;     // by all ranks
  std::uint64_t program_bytes_ = 0;  // likewise, beyond what they had at the start
  std::size_t written_most_ = 0;     // operations, for an event by any rank
  bool mismatched_ = false;
  bool replays_ = false;  // complete programs of an earlier run
  const bool lets_go_;    // of operations that ran; a restart looks for what they left
  const bool in_order_;
};

HostExecutor::HostExecutor(const Scenario& scenario, const Timeline& timeline, CollectiveArithmetic arithmetic, EngineFactory factory)
    : scenario_(scenario), timeline_(timeline), arithmetic_(arithmetic), factory_(factory ? std::move(factory) : engine_factory(scenario)) {}

HostExecutor::~HostExecutor() = default;
HostExecutor::HostExecutor(HostExecutor&&) = default;

std::unique_ptr<Engine> HostExecutor::make_engine_of(std::uint32_t rank, bool linear) const { return factory_({&scenario_, &timeline_, rank, linear}); }

RunSummary HostExecutor::run(const GradientSource& source, const RunOptions& options, TraceSink& sink) {
  expects(options.linear || !options.dry, "a dry run has no values to decide on");
  if (source.network_data() && !options.dry) {
    const bool on_devices = devices_ && devices_->autograd();
    const std::unique_ptr<Autograd> autograd = on_devices ? devices_->autograd()(scenario_, source) : std::make_unique<HostAutograd>(scenario_, source);
    return run(ComputedGradients(source, *autograd, scenario_.world_size), options, sink);
  }
  expects(!options.wide || (options.linear && !devices_), "fp64 is for linear runs on the host");
  expects(!options.weights || (options.linear && !options.wide && !options.dry && !devices_), "weights are for linear runs on the host");
  expects(!options.once || options.linear, "programs are let go in linear runs alone");
  const bool replays = recorded_ && options.linear && recorded_observes_ == options.observe_events && recorded_wide_ == options.wide;
  if (std::exchange(goes_on_, false)) {
    expects(options.once && ranks_.size() == scenario_.world_size, "a run goes on that keeps its programs, or with ranks of another world");
    for (Rank& rank : ranks_) rank.go_on();
  } else if (replays) {
    for (Rank& rank : ranks_) rank.rewind();
  } else {
    ranks_.resize(scenario_.world_size);
    for (std::uint32_t r = 0; r < scenario_.world_size; ++r) {
      Rank& rank = ranks_[r];
      rank.start_over();
      rank.program.wide = options.wide;
      rank.engine = make_engine_of(r, options.linear);
      ProgramWriter writer(rank.program);
      rank.engine->initialise(writer);
      rank.operations_at_start = static_cast<std::uint32_t>(rank.program.ops.size());
      rank.rewind();
    }
  }
  for (Rank& rank : ranks_) rank.memory.count_only(options.dry || options.weights || devices_);
  if (devices_ && !options.dry) devices_->begin(scenario_.world_size);
  Run this_run(*this, source, options, sink, replays);
  RunSummary summary = this_run.go();
  if (options.check_streams)
    for (std::uint32_t r = 0; r < ranks_.size(); ++r)
      for (const RaceRecord& race : this_run.races(r)) sink.race(race);
  // Complete programs can run again: nothing in them depended on a value but what is planted in every run alike.
  recorded_ = options.linear && !options.once && (!options.dry || timeline_.planted.empty()) &&
              std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.emitted_all && rank.finished; });
  recorded_observes_ = options.observe_events;
  recorded_wide_ = options.wide;
  return summary;
}

}  // namespace gradledger
