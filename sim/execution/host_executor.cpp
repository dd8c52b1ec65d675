#include "sim/execution/host_executor.h"

#include <algorithm>
#include <utility>

#include "sim/base/hash.h"
#include "sim/execution/alike_programs.h"
#include "sim/execution/emission.h"
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
  Run(HostExecutor& executor, RankClasses& classes, const GradientSource& source, const RunOptions& options, TraceSink& sink, bool replays)
      : executor_(executor),
        ranks_(executor.ranks_),
        classes_(classes),
        options_(options),
        recorder_(sink),
        sink_(recorder_),
        devices_(options.dry ? nullptr : executor.devices_),
        weights_(options.weights ? std::make_unique<SymbolicMemory>(executor.scenario_, executor.timeline_, &classes) : nullptr),
        operations_(source, recorder_, options.dry || options.weights, options.wide, devices_),
        reader_(ranks_, operations_, devices_, weights_.get(), recorder_),
        rendezvous_(ranks_, classes, process_groups(executor.scenario_), executor.arithmetic_),
        reductions_(ranks_, rendezvous_, recorder_),
        policy_(options.schedule),
        runnable_(executor.ranks_.size()),
        emission_(executor.scenario_, executor.timeline_, ranks_, classes, runnable_, options,
                  [&executor, linear = options.linear](std::uint32_t r) { return executor.make_engine_of(r, linear); }),
        replays_(replays),
        as_enqueued_(options.schedule.policy == Schedule::Policy::in_order || options.schedule.policy == Schedule::Policy::first_ready) {
    operations_.divide_by(executor.division_);
    operations_.show_memory_of_members(dynamic_cast<const NeedsMemoryOfRounds*>(&sink));
    const bool lets_go = options.once && !restores(executor.timeline_);
    if (lets_go) emission_.let_go();
    if (lets_go && options.check_streams) alike_.emplace(ranks_);
    AlikePrograms* const alike = alike_ ? &*alike_ : nullptr;
    if (weights_ && lets_go && dynamic_cast<const NeedsNoRepeatedMemory*>(&sink)) {
      auto rounds = rounds_of(executor.scenario_, executor.timeline_, SteadyRounds::rounds_min);
      if (!rounds.empty()) rounds_.emplace(ranks_, classes, *weights_, recorder_, std::move(rounds), alike);
    }
    if (weights_ && !rounds_) classes.span(GroupFamilies(rendezvous_.groups()));
    emission_.followed_by({alike, rounds_ ? &*rounds_ : nullptr, weights_.get()});
    emission_.limit(executor.program_bytes_max_);
  }

  RunSummary go() {
    for (std::uint32_t r = 0; r < ranks_.size(); ++r) {
      if (!classes_.leads(r)) continue;
      runnable_.insert(static_cast<std::uint16_t>(r));
      bytes_held_ += ranks_[r].memory.bytes_held();
      if (weights_) weights_->prepare(r, ranks_[r].program);
      if (alike_) alike_->begin(r, !classes_.members(r).empty());
    }
    do {
      while (!runnable_.empty()) {
        const std::uint16_t r = policy_.pick(runnable_);
        runnable_.erase(r);
        hash_.add(r);
        advance(r);
      }
    } while (passes_barrier() || rendezvous_.part_receivers([this](std::uint32_t leader) { emission_.dissolve(leader); }));
    if (alike_) alike_->catch_up(true);
    const bool ended = std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.finished; });
    if (!ended && !mismatched_) sink_.deadlock(rendezvous_.deadlock());
    summary_.completed = ended && std::none_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return !rank.errors.empty(); });
    for (std::uint32_t r = 0; r < ranks_.size(); ++r) summary_.ranks_run += classes_.leads(r);
    summary_.trace_hash = hash_.value();
    summary_.replay_diverged = policy_.replay_diverged();
    summary_.decisions = policy_.take_decisions();
    return std::move(summary_);
  }

  bool decided_on_values() const { return decided_on_values_; }
  std::vector<RaceRecord> races(std::uint32_t r) const { return alike_ ? alike_->races(r) : stream_races(ranks_[r].program, r); }

 private:
  // ---- rounds that repeat --------------------------------------------------------------------------------------------------------

  // All ranks stand still. Whether any may go on.
  bool passes_barrier() {
    if (!rounds_ || rounds_->barrier() == never) return false;
    const auto at_rest = [&](std::uint32_t r) {
      const Rank& rank = ranks_[r];
      return rank.next_event == rounds_->barrier() && rank.ran_dry() && rank.errors.empty() && !waits_for_value(rank);
    };
    if (alike_) alike_->catch_up(false);
    const bool quiet = rendezvous_.idle() && classes_.all_leaders(at_rest) && !(alike_ && alike_->has_races());
    const std::uint64_t in_round = summary_.operations - operations_at_barrier_, passed = rounds_->arrive(quiet, bytes_held_);
    hash_.add(passed);
    summary_.operations += passed * in_round;
    operations_at_barrier_ = summary_.operations;
    for (std::uint32_t r = 0; r < ranks_.size(); ++r)
      if (classes_.leads(r) && !ranks_[r].finished) runnable_.insert(static_cast<std::uint16_t>(r));
    return true;
  }

  // ---- one rank, until it waits for others or ends -------------------------------------------------------------------------------

  // Ranks commute between collectives, so a rank goes on as long as it can; the choice that matters is among its streams.
  void advance(std::uint16_t r) {
    const Rank& rank = ranks_[r];
    while (true) {
      while (host_goes_ahead(rank)) emission_.next_event(r);
      const std::uint64_t before = summary_.operations;
      std::optional<Stream> stream = as_enqueued_ ? advance_as_enqueued(r) : advance_a_stream(r);
      if (!stream && options_.schedule.policy == Schedule::Policy::first_ready) {
        stream = first_ready(rank.head, [&](Stream s) { return ready(r, s); });
        if (stream) execute(r, *stream);
      }
      if (!stream) {
        if (rank.emitted_all && rank.ran_dry() && !rank.finished) finish(r);
        return;
      }
      hash_.add((std::uint64_t{r} << 48) ^ (static_cast<std::uint64_t>(*stream) << 40) ^ (summary_.operations - before));
      if (options_.log_decisions) summary_.decision_hashes.push_back(hash_.value());
    }
  }

  // The host goes ahead of the device until something makes it wait.
  bool host_goes_ahead(const Rank& rank) const {
    return rank.head[0] == no_index && !rank.emitted_all && !waits_for_value(rank) && rank.next_event < (rounds_ ? rounds_->barrier() : never);
  }

  // One step of a stream that may go on, which it is; none where none may.
  std::optional<Stream> advance_a_stream(std::uint16_t r) {
    const Rank& rank = ranks_[r];
    std::array<std::uint16_t, stream_count> enabled;
    std::size_t count = 0;
    for (std::uint16_t s = 0; s < stream_count; ++s)
      if (rank.head[s] != no_index && ready(r, static_cast<Stream>(s))) enabled[count++] = s;
    if (count == 0) return std::nullopt;
    const auto stream = static_cast<Stream>(enabled[policy_.pick({enabled.data(), count})]);
    // A lone device stream runs on while nothing that it does can enable another.
    if (count == 1 && stream != Stream::host && computes(rank.program.ops[rank.head[static_cast<std::size_t>(stream)]].kind)) run_on(r, stream);
    else execute(r, stream);
    return stream;
  }

  // As far as it comes, in the order of enqueueing: whatever an operation waits for on its own rank stands before it. The stream of the first; none where that
  // waits for other ranks.
  std::optional<Stream> advance_as_enqueued(std::uint16_t r) {
    Rank& rank = ranks_[r];
    std::optional<Stream> begun;
    std::uint32_t at = *std::min_element(rank.head.begin(), rank.head.end());  // no_index is the highest
    bool at_end = host_goes_ahead(rank);
    for (; at < rank.program.ops.size() && !at_end; ++at) {
      const Op& op = rank.program.ops[at];
      const Stream stream = op.stream;
      if (rank.head[static_cast<std::size_t>(stream)] != at) continue;  // it did not wait for one before it
      const bool calculates = computes(op.kind);
      if (!calculates && !ready(r, stream)) return begun;
      if (calculates) compute(r, op, at);
      else execute(r, stream);
      if (!calculates || stream == Stream::host) at_end = host_goes_ahead(rank);
      if (!begun) begun = stream;
      if (rank.waits_for_peers[static_cast<std::size_t>(stream)]) return begun;
    }
    return begun;
  }

  void run_on(std::uint16_t r, Stream stream) {
    Rank& rank = ranks_[r];
    const auto s = static_cast<std::size_t>(stream);
    while (true) {
      const std::uint32_t head = rank.head[s];
      if (head == no_index || rank.waits_for_peers[s] || !enqueued(rank.head, head)) return;
      const Op& op = rank.program.ops[head];
      if (!computes(op.kind)) return;
      compute(r, op, head);
    }
  }

  void compute(std::uint16_t r, const Op& op, std::uint32_t at) {
    Rank& rank = ranks_[r];
    rank.event = op.event;
    rank.head[static_cast<std::size_t>(op.stream)] = op.next;
    summary_.operations += ranks_of(r);
    execute_operation(op, at, rank, r);
  }

  std::uint64_t ranks_of(std::uint32_t r) const { return weights_ ? classes_.size(r) : 1; }  // numbers are run by each for itself

  static bool waits_for_value(const Rank& rank) { return rank.engine && rank.engine->suspended(); }

  bool ready(std::uint16_t r, Stream stream) const {
    const Rank& rank = ranks_[r];
    return !rank.waits_for_peers[static_cast<std::size_t>(stream)] && may_run(rank.program, rank.head, stream, [&](std::uint32_t e) { return rank.recorded[e] != 0; }) &&
           (stream != Stream::host || rank.program.ops[rank.head[0]].kind != OpKind::receive || !rendezvous_.awaits_sender(r));
  }

  void execute(std::uint16_t r, Stream stream) {
    Rank& rank = ranks_[r];
    const auto s = static_cast<std::size_t>(stream);
    const std::uint32_t at = rank.head[s];
    const Op& op = rank.program.ops[at];
    rank.event = op.event;
    summary_.operations += ranks_of(r);
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
        if (!replays_) resume(r, Op(op));  // else what follows from the value is in the program; emission may move the program
        break;
      case OpKind::observe: observe(r, op); break;
      case OpKind::report: {
        if (options_.dry || (weights_ && op.source.buffer != no_index)) break;  // weights have no norms
        const double value = op.source.buffer == no_index ? op.scalar : reader_.scalar(r, op, "a report") * op.scalar;
        of_class(r, [&](std::uint32_t member) { sink_.step_fact({member, op.event, static_cast<StepFact>(op.index), value}); });
        break;
      }
      case OpKind::send:
        ++rank.sends.sent[op.flag];
        rank.sends.sent_to[op.flag] = other_rank(r, op);
        of_class(r, [&](std::uint32_t member) { runnable_.insert(static_cast<std::uint16_t>(classes_.leader(other_rank(member, op)))); });
        break;
      case OpKind::receive: ++rank.sends.received[op.flag]; break;
      case OpKind::end_event:
        of_class(r, [&](std::uint32_t member) {
          tell_errors(member, op.event);
          sink_.event_done(member, op.event);
        });
        break;
      default: execute_operation(op, at, rank, r);
    }
  }

  // What a rank does for itself and for those that it leads.
  template <class Do>
  void of_class(std::uint32_t r, Do&& act) const {
    act(r);
    for (const std::uint32_t member : classes_.members(r)) act(member);
  }

  void execute_operation(const Op& op, std::uint32_t at, Rank& rank, std::uint16_t r) {
    if (weights_ && !weights_->execute(op, r, rank.program)) {
      summary_.operations -= emission_.dissolve_before(r, at);  // they do it themselves
      expects(weights_->execute(op, r, rank.program), "a rank by itself holds other forms than it does");
    }
    const std::span<const std::uint32_t> members = weights_ ? classes_.members(r) : std::span<const std::uint32_t>{};
    if (!changes_storage(op.kind)) return operations_.execute(op, at, rank, r, members);
    const std::uint64_t before = rank.memory.bytes_held();
    operations_.execute(op, at, rank, r, members);
    bytes_held_ += (rank.memory.bytes_held() - before) * ranks_of(r);
    summary_.bytes_peak = std::max(summary_.bytes_peak, bytes_held_);
  }

  void finish(std::uint16_t r) {
    of_class(r, [&](std::uint32_t member) {
      ranks_[member].finished = true;
      tell_errors(member, never);
    });
  }

  // Up to the end of this event. A loop that goes on behind an error shows it there: it may never come to the end of its script.
  void tell_errors(std::uint32_t r, std::uint32_t event) {
    Rank& rank = ranks_[r];
    while (rank.errors_told < rank.errors.size() && rank.errors[rank.errors_told].event <= event) sink_.engine_error(rank.errors[rank.errors_told++]);
  }

  void resume(std::uint16_t r, const Op& op) {
    decided_on_values_ = true;
    const double value = options_.dry ? 0.0 : reader_.scalar(r, op, "a host decision");  // dry: no step is skipped
    emission_.resume(r, op.event, value);
  }

  void observe(std::uint16_t r, const Op& op) {
    if (options_.dry) return;
    if (op.flag == 1) of_class(r, [&](std::uint32_t member) { tell_errors(member, op.event); });  // whoever judges what an event left knows whether it raised
    if (weights_) return reader_.show_weights(r, classes_.members(r), op);
    const std::uint64_t values = reader_.show(r, op);
    hash_.add(values);
    summary_.value_hash += mix(values ^ op.index);  // order of ranks and buffers does not matter
  }

  // ---- collectives ----------------------------------------------------------------------------------------------------------------

  void arrive(std::uint16_t r, Stream stream, const Op& op) {
    of_class(r, [&](std::uint32_t member) { sink_.collective(rendezvous_.record_of(static_cast<std::uint16_t>(member), op.index, op.event)); });
    const auto complete = rendezvous_.arrive(r, stream, op, weights_.get(), [&](std::uint32_t leader) { emission_.dissolve(leader); });
    for (Meeting& meeting : complete) meet(std::move(meeting), r);
  }

  void meet(Meeting&& meeting, std::uint16_t last) {
    if (const char* what = rendezvous_.misfit(meeting)) {
      mismatched_ = true;  // they wait for ever, and others go on until they wait too, so that what is shown does not depend on their order
      return sink_.mismatch(rendezvous_.mismatch(meeting, what));
    }
    const bool shown = options_.show_reductions && !options_.dry && !weights_ && !devices_;
    if (shown) reductions_.before(meeting);
    if (weights_) rendezvous_.perform(meeting, *weights_, [&](std::uint32_t member) { emission_.leave(member); });
    else if (!options_.dry) rendezvous_.perform(meeting, devices_);
    if (shown) reductions_.after(meeting);
    for (std::uint32_t member : rendezvous_.members(meeting)) {
      const auto peer = static_cast<std::uint16_t>(member);
      if (!classes_.leads(peer)) continue;
      ranks_[peer].pass_collective(meeting.rank[peer].stream);
      if (peer != last) runnable_.insert(peer);
    }
    rendezvous_.recycle(std::move(meeting));
  }

  HostExecutor& executor_;
  std::vector<Rank>& ranks_;
  RankClasses& classes_;
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
  Emission emission_;
  std::uint64_t bytes_held_ = 0;  // by all ranks
  bool mismatched_ = false;
  bool decided_on_values_ = false;
  const bool replays_;  // complete programs of an earlier run
  const bool as_enqueued_;
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
  const Recorded kind{options.linear, options.observe_events, options.wide};
  RankClasses classes(scenario_.world_size);
  if (std::exchange(goes_on_, false)) {
    expects(options.once && ranks_.size() == scenario_.world_size, "a run goes on that keeps its programs, or with ranks of another world");
    for (Rank& rank : ranks_) rank.go_on();
  } else if (recorded_ == kind) {
    for (Rank& rank : ranks_) rank.rewind();
  } else {
    ranks_.resize(scenario_.world_size);
    const auto engine_of = [&](std::uint32_t r) { return make_engine_of(r, options.linear); };
    Emission::begin(scenario_, timeline_, ranks_, classes, engine_of, options.wide, may_be_classes(timeline_, options, sink));
  }
  for (Rank& rank : ranks_) rank.memory.count_only(options.dry || options.weights || devices_);
  if (devices_ && !options.dry) devices_->begin(scenario_.world_size);
  Run this_run(*this, classes, source, options, sink, recorded_ == kind);
  RunSummary summary = this_run.go();
  if (options.check_streams)
    for (std::uint32_t r = 0; r < ranks_.size(); ++r)
      for (const RaceRecord& race : this_run.races(r)) sink.race(race);
  // Complete programs can run again where nothing in them depended on a value but what is planted in every run alike.
  const bool complete = std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.emitted_all && rank.finished; });
  const bool may_run_again = complete && !options.once && (options.linear || !this_run.decided_on_values()) && (!options.dry || timeline_.planted.empty());
  recorded_ = may_run_again ? std::optional(kind) : std::nullopt;
  return summary;
}

}  // namespace gradledger
