#include "ref/passes.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "ref/kept_gradients.h"
#include "ref/kept_state.h"
#include "ref/loss_scale.h"
#include "ref/parameters.h"
#include "ref/sorted_mismatches.h"
#include "ref/weights_judge.h"
#include "sim/base/limits.h"
#include "sim/base/hash.h"
#include "sim/trace/repeated_memory.h"

namespace gradledger::ref {
namespace {

// Weights that no 16-bit probe carries exactly are told apart in fp64, where the producer has it.
ProbeRange range_of(const Workload& workload, const Timeline& timeline, const Producer& producer, bool weights) {
  if (weights) return wide_range(timeline);
  const ProbeRange native = probe_range(workload, timeline);
  return native.dyadic || !producer.capabilities().wide || producer.capabilities().few_runs ? native : wide_range(timeline);
}

// All that a run on weights shows, to sinks that ask of memory no more than which buffers there were.
class OfWeights final : public TraceSink, public NeedsNoRepeatedMemory, public TakesRounds {
 public:
  explicit OfWeights(Tee& to) : to_(to) {}

  void weights(const WeightObservation& o) override { to_.weights(o); }
  void collective(const CollectiveRecord& r) override { to_.collective(r); }
  void memory(const MemoryRecord& r) override {
    if (!r.again) to_.memory(r);
  }
  void step_fact(const StepRecord& r) override { to_.step_fact(r); }
  void event_done(std::uint32_t rank, std::uint32_t event) override { to_.event_done(rank, event); }
  void unwritten(const UnwrittenRecord& r) override { to_.unwritten(r); }
  void engine_error(const EngineErrorRecord& r) override { to_.engine_error(r); }
  void deadlock(const DeadlockRecord& r) override { to_.deadlock(r); }
  void mismatch(const MismatchRecord& r) override { to_.mismatch(r); }
  void race(const RaceRecord& r) override { to_.race(r); }
  void round_again(KeptRound& round) override { to_.round_again(round); }
  void rounds_over(KeptRound& round) override { to_.rounds_over(round); }

 private:
  Tee& to_;
};

}  // namespace

Passes::Passes(const Workload& workload, const Timeline& timeline, Producer& producer, const OracleOptions& options)
    : workload_(workload),
      timeline_(timeline),
      producer_(producer),
      options_(options),
      weights_(producer.capabilities().weights && options.executor != Executor::numeric),
      range_(range_of(workload, timeline, producer, weights_)),
      ledger_(workload, timeline, range_),
      reached_(workload.world_size) {
  ledger_.fills_unwritten(!producer.capabilities().few_runs && !producer.capabilities().one_pass);
}

void Passes::run(Verdict& verdict) {
  const auto& optimizers = timeline_.contract.optimizers;
  if (std::any_of(optimizers.begin(), optimizers.end(), [](const OptimizerConfig& o) { return o.type == OptimizerType::muon; }))
    verdict.left_out.push_back("weights that Muon updates, its orthogonalization, and norms and clipping of what that makes; its momentum is judged");
  if (producer_.capabilities().one_pass || producer_.capabilities().few_runs) say_what_plants_hide(verdict);
  if (producer_.capabilities().one_pass) return one_pass(verdict);
  if (producer_.capabilities().few_runs) return few_runs(verdict);
  if (options_.executor == Executor::symbolic) return symbolic_run_alone(verdict);
  const GradientKind kind = workload_.gradients.kind;
  verdict.dyadic = range_.dyadic || weights_;
  value_pass(kind == GradientKind::probe ? GradientKind::normal : kind, true, verdict);
  if (!evidence_.facts.races.empty()) {
    ledger_schedule_.policy = Schedule::Policy::in_order;
    find_race_in_values();
  }
  if (kind == GradientKind::probe) value_pass(GradientKind::adversarial, false, verdict);
  if (weights_) return weights_pass(verdict);
  fingerprint_passes(verdict);
  want_snapshots();
  if (range_.dyadic || range_.wide) decode(verdict);
  else decode_without_fingerprint(verdict);
}

// Without a run in which nothing is planted, nobody sees what else such a gradient holds.
void Passes::say_what_plants_hide(Verdict& verdict) const {
  std::set<std::string> hidden;
  for (const Plant& plant : timeline_.planted)
    if (const Parameter& parameter = workload_.parameters[plant.parameter]; parameter.numel == 1) hidden.insert(parameter.name);
  for (const std::string& name : hidden) verdict.left_out.push_back("what the gradient of " + name + " holds beside the infinity or NaN that the script plants in its one element");
}

// Random, adversarial or given data, with every decision of the engine alive.
void Passes::value_pass(GradientKind kind, bool primary, Verdict& verdict) { value_pass(*value_source(workload_, timeline_, kind, value_seed(kind)), primary, verdict); }

std::uint64_t Passes::value_seed(GradientKind kind) const { return hash_keys({options_.seed, workload_.gradients.seed, static_cast<std::uint64_t>(kind)}); }

void Passes::value_pass(const GradientSource& given, bool primary, Verdict& verdict) {
  const PlantedSource planted(given, timeline_);
  const KeptGradients source(planted, workload_, timeline_, weights_);  // a simulation asks from one thread
  Model model(workload_, timeline_, source, Model::Mode::bounded);
  const bool only = producer_.capabilities().one_pass;  // there is no pass of probes that asks what the loop means
  MeantModels meant_models = meant(source, Model::Mode::bounded);
  meant_models.or_documented = !only;
  PassJudge values(workload_, timeline_, model, Model::Mode::bounded, timeline_.contract.clip.max_norm, only ? &evidence_.seen : nullptr, &meant_models);
  ParameterJudge parameters(workload_, timeline_.contract, source);
  AgreementJudge agreement(timeline_);
  StepJudge steps(workload_, timeline_, source, model, only ? nullptr : &meant_models);
  KeptStateJudge kept(workload_, timeline_, source);
  LoopClipJudge loop_clip(workload_, timeline_, model);
  FactsSink facts(workload_, timeline_);
  Tee tee;
  tee.add(&loop_clip);
  tee.add(&agreement);
  tee.add(&parameters);
  tee.add(&facts);
  tee.add(&steps);
  tee.add(&kept);
  if (primary) tee.add(options_.watch);
  if (primary) tee.add(&reached_);
  tee.add(&values);  // last: it forgets what is past
  RunOptions run;
  run.schedule = primary ? options_.schedule : ledger_schedule_;
  run.check_streams = primary && options_.check_streams;
  const RunSummary summary = producer_.run(source, run, tee);
  ++verdict.value_passes;
  verdict.values.add(values.statistics());
  verdict.parameters.add(parameters.statistics());
  const auto append = [](auto& into, const auto& more) { into.insert(into.end(), more.begin(), more.end()); };
  append(evidence_.values, values.mismatches());
  append(evidence_.parameters, parameters.mismatches());
  append(evidence_.divergences, agreement.divergences());
  append(evidence_.steps, steps.mismatches());
  append(evidence_.steps, kept.mismatches());
  append(evidence_.loop_norms, loop_clip.found());
  evidence_.norms.add(steps.norms());
  evidence_.norms.add(loop_clip.norms());
  if (!primary) return;
  evidence_.decided = steps.decided();
  evidence_.without_update = steps.without_update();
  evidence_.skipped = steps.skipped();
  evidence_.missing = steps.missing();
  evidence_.facts = facts.take(summary);
  if (only) note_shown(values.book(), verdict);
}

// Tries schedules until the values of one differ from those of the enqueued order, in which nothing can race.
void Passes::find_race_in_values() {
  const GradientKind kind = workload_.gradients.kind == GradientKind::probe ? GradientKind::normal : workload_.gradients.kind;
  const auto given = value_source(workload_, timeline_, kind, value_seed(kind));
  const PlantedSource source(*given, timeline_);
  TraceSink nobody;
  RunOptions run;
  run.schedule = ledger_schedule_;
  const std::uint64_t in_order = producer_.run(source, run, nobody).value_hash;
  run.schedule.policy = Schedule::Policy::seeded;
  const std::uint64_t each = std::max<std::uint64_t>(evidence_.facts.summary.operations, 1);
  const auto tries = std::clamp<std::uint64_t>(limits::race_operations_max / each, 1, limits::race_schedules_max);
  for (std::uint64_t seed = 0; seed < tries && !evidence_.race_seed; ++seed) {
    run.schedule.seed = seed;
    ++evidence_.race_schedules;
    if (producer_.run(source, run, nobody).value_hash != in_order) evidence_.race_seed = seed;
  }
}

// The producer tells what everything weighs: one run is the whole ledger.
void Passes::weights_pass(Verdict& verdict) {
  RunOptions run;
  run.schedule = ledger_schedule_;
  run_on_weights(run, nullptr, verdict);
}

// In place of the primary pass too: whatever the size of the parameters, this run holds pieces and no elements.
void Passes::symbolic_run_alone(Verdict& verdict) {
  expects(weights_, "a symbolic run needs a producer that shows weights");
  verdict.dyadic = true;
  FactsSink facts(workload_, timeline_);
  Tee tee;
  tee.add(&facts);
  tee.add(options_.watch);
  RunOptions run;
  run.schedule = options_.schedule;
  // What another order would change is a race, and is reported without running it.
  if (options_.check_streams && run.schedule.policy == Schedule::Policy::seeded) run.schedule.policy = ledger_schedule_.policy;
  run.check_streams = options_.check_streams;
  run.once = true;
  evidence_.facts = facts.take(run_on_weights(run, &tee, verdict));
  verdict.left_out.push_back("no run on numbers: rounding, clipping, what overflows, and what updates make of weights and moments");
  if (!evidence_.facts.races.empty()) verdict.left_out.push_back("no schedules are tried for one that shows a race in the values");
}

RunSummary Passes::run_on_weights(RunOptions run, TraceSink* also, Verdict& verdict) {
  WeightsJudge judge(workload_, timeline_, ledger_, &evidence_.seen);
  run.linear = true;
  run.weights = true;
  Tee tee;
  AsFarAs shown(reached_, judge);
  tee.add(also);
  tee.add(reached_.stopped() ? static_cast<TraceSink*>(&shown) : &judge);
  const bool all_memory = !run.once || (options_.watch && !dynamic_cast<const NeedsNoRepeatedMemory*>(options_.watch));
  OfWeights brief(tee);
  RunSummary summary = producer_.run(SingleSource(range_), run, all_memory ? static_cast<TraceSink&>(tee) : brief);
  verdict.weights = true;
  verdict.ledger.add(judge.book().statistics());
  evidence_.fingerprint = judge.take_mismatches();
  sort_by_key(evidence_.fingerprint);
  note_shown(judge.book(), verdict);
  want_snapshots();
  verdict.contributions = static_cast<std::uint32_t>(all_contributions().size());
  take_apart(judge, verdict);
  return summary;
}

// One rank after the other, so that what there is room for is whole.
void Passes::take_apart(const WeightsJudge& judge, Verdict& verdict) {
  std::vector<SnapshotKey> wanted;
  for (const SnapshotKey& key : judge.untold()) ledger_.want(key);  // not to be shown as if it balanced
  for (const auto& [key, entry] : ledger_.entries()) wanted.push_back(key);
  std::stable_sort(wanted.begin(), wanted.end(), [](const SnapshotKey& a, const SnapshotKey& b) { return a.rank < b.rank; });
  std::uint64_t cells = 0;
  for (const SnapshotKey& key : wanted) {
    if (cells > options_.ledger_cells_max) {
      ledger_.forget(key);
      evidence_.not_taken_apart.insert(key);
      verdict.not_taken_apart += judge.wrong(key);
      continue;
    }
    LedgerEntry entry = judge.entry(key);
    cells += std::uint64_t{entry.columns.size()} * std::max<std::size_t>(1, entry.layout.size());  // a share of padding has columns too
    ledger_.put(std::move(entry));
  }
}

void Passes::fingerprint_passes(Verdict& verdict) {
  FingerprintSource fingerprint(timeline_, range_, options_.seed);
  const PlantedSource source(fingerprint, timeline_);
  const Model::Mode mode = range_.dyadic ? Model::Mode::exact : Model::Mode::bounded;
  RunOptions run;
  run.linear = true;
  run.wide = range_.wide;
  run.schedule = ledger_schedule_;
  const std::uint32_t passes = range_.dyadic || range_.wide ? fingerprint.passes(!range_.wide && hides_earlier_windows(timeline_)) : 1;
  for (std::uint32_t pass = 0; pass < passes; ++pass) {
    fingerprint.set_pass(pass);
    Model model(workload_, timeline_, source, mode, {.wide = range_.wide});
    const MeantModels meant_models = meant(source, mode);
    PassJudge judge(workload_, timeline_, model, mode, 0.0, pass == 0 ? &evidence_.seen : nullptr, &meant_models);
    AsFarAs shown(reached_, judge);
    producer_.run(source, run, shown);
    ++verdict.fingerprint_passes;
    verdict.ledger.add(judge.statistics());
    for (const Mismatch& mismatch : judge.mismatches()) {
      const auto same = [&](const Mismatch& m) { return m.key == mismatch.key; };
      if (std::none_of(evidence_.fingerprint.begin(), evidence_.fingerprint.end(), same)) evidence_.fingerprint.push_back(mismatch);
    }
    if (pass > 0) continue;
    note_shown(judge.book(), verdict);
    forget_what_stopped(shown, verdict);
  }
  sort_by_key(evidence_.fingerprint);
}

// What the first pass that is held to the books showed, and what it did not.
void Passes::note_shown(const SnapshotBook& book, Verdict& verdict) {
  evidence_.applied = book.applied();
  verdict.coverage.judged = book.statistics().snapshots;
  verdict.coverage.not_judged = book.statistics().not_due;
  evidence_.not_applied = book.not_applied();
  // Silence is evidence only of a producer that promised to show what a step applies, or of a step that says what it did.
  for (auto at = evidence_.not_applied.begin(); at != evidence_.not_applied.end();) {
    const bool told = producer_.capabilities().applied_gradients || book.applied().contains(at->first) || evidence_.without_update.contains(at->first);
    if (!told) verdict.coverage.not_shown.push_back(at->first);
    at = told ? std::next(at) : evidence_.not_applied.erase(at);
  }
  evidence_.not_reduced = book.not_reduced();
  if (!producer_.capabilities().accumulators) std::erase_if(evidence_.not_reduced, [&](const auto& hole) { return !book.shows_reduced(hole.first); });
}

// A run on probes that a rank did not come through says nothing of what the rank would have shown.
void Passes::forget_what_stopped(const AsFarAs& run, Verdict& verdict) {
  const auto stopped = [&](const auto& hole) {
    for (std::uint32_t r = 0; r < workload_.world_size; ++r)
      if (timeline_.events[hole.first].runs_on(r) && !run.came_through(r, hole.first)) return true;
    return false;
  };
  const auto forgotten = std::erase_if(evidence_.not_applied, stopped) + std::erase_if(evidence_.not_reduced, stopped);
  if (forgotten > 0) verdict.left_out.push_back("what ranks hold and apply at events that a run on probes did not come through");
}

// Ranks that average with each other mean the same.
MeantModels Passes::meant(const GradientSource& source, Model::Mode mode) const {
  MeantModels out;
  if (!timeline_.two_layers) return out;
  const std::uint32_t models = timeline_.contract.average_group.empty() ? 1 : workload_.world_size;
  for (std::uint32_t r = 0; r < models; ++r) out.models.push_back(std::make_unique<Model>(workload_, timeline_, source, mode, Model::View{Layer::meant, range_.wide, r}));
  return out;
}

// Of each rank and window the first event that does not balance, by snapshots that have each parameter once, and the applied gradient.
void Passes::want_snapshots() {
  std::vector<std::map<std::uint32_t, std::uint32_t>> unbalanced(workload_.world_size);  // event by window, by rank
  std::set<std::tuple<std::uint32_t, std::uint32_t, Role, std::uint32_t>> seen_wrong;    // rank, window, parameter
  for (const Mismatch& mismatch : evidence_.fingerprint) {
    const auto [at, opens] = unbalanced[mismatch.key.rank].try_emplace(mismatch.step, mismatch.key.event);
    bool fresh = opens;
    for (const ElementRange& range : mismatch.ranges)
      fresh |= at->second == mismatch.key.event && seen_wrong.insert({mismatch.key.rank, mismatch.step, mismatch.role, range.parameter}).second;
    if (fresh || mismatch.role == Role::applied_gradient) ledger_.want(mismatch.key, mismatch.after);
  }
  for (const JudgedSnapshot& seen : evidence_.seen)
    if (seen.role == Role::applied_gradient && (options_.full_ledger || !(range_.dyadic || range_.wide) || unbalanced[seen.key.rank].contains(seen.step)))
      ledger_.want(seen.key, seen.after);
  if (range_.dyadic || range_.wide) return;
  // Without equality the fingerprint may miss a contribution: decode what boundaries left behind as well.
  for (const JudgedSnapshot& seen : evidence_.seen)
    if (timeline_.is_boundary(seen.key.event) && seen.role != Role::local_accumulator) ledger_.want(seen.key, seen.after);
}

Passes::Pairs Passes::all_contributions() const {
  Pairs pairs;
  for (std::uint32_t b = 0; b < timeline_.backwards.size(); ++b)
    for (std::uint32_t r = 0; r < workload_.world_size; ++r)
      if (timeline_.backwards[b].micro_batch[r] != no_contribution) pairs.emplace_back(b, r);
  return pairs;
}

// Over the limit, the contributions of the first windows with something to decode come first.
Passes::Pairs Passes::limited(Pairs pairs, Verdict& verdict) const {
  verdict.contributions = static_cast<std::uint32_t>(pairs.size());
  if (pairs.size() <= options_.decode_max) return pairs;
  std::uint32_t first_step = timeline_.steps;
  for (const auto& [key, entry] : ledger_.entries()) first_step = std::min(first_step, timeline_.events[key.event].step);
  std::stable_sort(pairs.begin(), pairs.end(), [&](const auto& a, const auto& b) {
    const auto distance = [&](const auto& pair) {
      const std::uint32_t step = timeline_.backwards[pair.first].step;
      return step >= first_step ? 2 * (step - first_step) : 2 * (first_step - step) + 1;
    };
    return distance(a) < distance(b);
  });
  verdict.undecoded = static_cast<std::uint32_t>(pairs.size()) - options_.decode_max;
  pairs.resize(options_.decode_max);
  std::sort(pairs.begin(), pairs.end());
  return pairs;
}

void Passes::decode(Verdict& verdict) {
  Pairs pairs = limited(all_contributions(), verdict);
  if (ledger_.entries().empty()) {
    verdict.undecoded = 0;
    return;
  }
  ledger_.decode(producer_, ledger_schedule_, pairs);
  verdict.decode_passes += static_cast<std::uint32_t>(pairs.size());
}

// First the applied gradients and what boundaries left; where those do not balance, everything of the window, for the contributions that
// are miscounted, to find the first event.
void Passes::decode_without_fingerprint(Verdict& verdict) {
  decode(verdict);
  std::set<std::pair<std::uint32_t, std::uint32_t>> miscounted;  // backward, rank
  std::set<std::pair<std::uint32_t, std::uint32_t>> windows;     // rank, step
  for (const auto& [key, entry] : ledger_.entries()) {
    for (const LedgerRow& row : ledger_.rows(entry))
      for (std::size_t k = 0; k < entry.columns.size(); ++k)
        if (row.observed[k] != row.expected[k]) {
          miscounted.insert({entry.columns[k].backward, entry.columns[k].rank});
          windows.insert({key.rank, entry.step});
        }
  }
  if (miscounted.empty()) return;
  Ledger earlier(workload_, timeline_, range_);
  for (const JudgedSnapshot& seen : evidence_.seen)
    if (windows.contains({seen.key.rank, seen.step}) && !ledger_.wants(seen.key)) earlier.want(seen.key, seen.after);
  const Pairs pairs(miscounted.begin(), miscounted.end());
  earlier.decode(producer_, ledger_schedule_, pairs);
  verdict.decode_passes += static_cast<std::uint32_t>(pairs.size());
  std::set<std::pair<std::uint32_t, std::uint32_t>> found;
  for (const auto& [key, entry] : earlier.entries()) {
    if (entry.columns.empty() || found.contains({key.rank, entry.step})) continue;
    for (const LedgerRow& row : earlier.rows(entry)) {
      if (row.observed == row.expected) continue;
      // A stand-in for the fingerprint's mismatch: where the books first failed.
      Mismatch mismatch;
      mismatch.key = key;
      mismatch.role = entry.role;
      mismatch.step = entry.step;
      evidence_.fingerprint.push_back(std::move(mismatch));
      found.insert({key.rank, entry.step});
      break;
    }
  }
  sort_by_key(evidence_.fingerprint);
}

}  // namespace gradledger::ref
