#include "search/campaign/screen.h"

#include <algorithm>
#include <cmath>

#include "ref/facts.h"
#include "ref/judge.h"
#include "ref/kept_gradients.h"
#include "ref/model.h"
#include "ref/probes.h"
#include "sim/base/hash.h"
#include "sim/frameworks/search_space.h"

namespace gradledger::search {
namespace {

// What went wrong without any value: the first of each kind.
class Incidents final : public TraceSink {
 public:
  explicit Incidents(const Timeline& timeline) : timeline_(timeline) {}

  void unwritten(const UnwrittenRecord& r) override { note(1, r.event); }
  void engine_error(const EngineErrorRecord& r) override {
    note(2, r.event);
    for (const char c : r.type) hash_.add(static_cast<std::uint64_t>(c));
  }
  void deadlock(const DeadlockRecord&) override { note(4, 0); }
  void mismatch(const MismatchRecord&) override { note(8, 0); }
  void race(const RaceRecord& r) override {
    if ((seen_ & 16u) == 0)
      for (const char c : r.buffer)
        if (c < '0' || c > '9') hash_.add(static_cast<std::uint64_t>(c));
    note(16, r.event);
  }

  bool any() const { return seen_ != 0; }
  bool stopped() const { return (seen_ & 14u) != 0; }
  std::uint64_t hash() const { return mix(hash_.value() ^ seen_); }

 private:
  void note(unsigned kind, std::uint32_t event) {
    if ((seen_ & kind) == 0) hash_.add(kind * 64u + static_cast<unsigned>(timeline_.events[event].kind()));
    seen_ |= kind;
  }

  const Timeline& timeline_;
  unsigned seen_ = 0;
  TraceHash hash_;
};

// Snapshots alone. Without one after every event nothing holds the end of an event back until its device work is over, and the judge
// forgets what lies before the ends that it is told of.
class SnapshotsOf final : public TraceSink {
 public:
  explicit SnapshotsOf(TraceSink& to) : to_(to) {}
  void observe(const Observation& o) override { to_.observe(o); }

 private:
  TraceSink& to_;
};

// Lost, too small, right for somebody else, too large.
std::uint64_t mark_of(const ref::WorstElement& worst) {
  if (!std::isfinite(worst.observed)) return 1;
  if (worst.expected == 0) return 2;
  if (worst.observed == 0) return 3;
  const double ratio = worst.observed / worst.expected;
  return ratio < 0 ? 4 : ratio < 1 ? 5 : std::nearbyint(ratio) == ratio ? 6 : 7;
}

// A step applies nothing where its window has no contribution.
bool any_is_due(const Timeline& timeline, const std::map<std::uint32_t, std::vector<ref::ElementRange>>& not_applied, std::uint32_t since) {
  return std::any_of(not_applied.lower_bound(since), not_applied.end(), [&](const auto& entry) {
    for (std::size_t b = 0; b < timeline.backwards.size(); ++b)
      for (std::uint32_t r = 0; r < timeline.world_size; ++r)
        if (timeline.backwards[b].step == timeline.events[entry.first].step && timeline.backwards[b].micro_batch[r] != no_contribution && timeline.dropped_at[b][r] == never)
          return true;
    return false;
  });
}

// Events before it were not shown, and nothing of them is missed.
bool any_since(const std::map<std::uint32_t, std::vector<ref::ElementRange>>& missing, std::uint32_t since) { return missing.lower_bound(since) != missing.end(); }

std::vector<Rank> take(std::vector<Rank>& spare, std::uint32_t count) {
  std::vector<Rank> out;
  out.reserve(count);
  while (out.size() < count && !spare.empty()) {
    out.push_back(std::move(spare.back()));
    spare.pop_back();
  }
  return out;
}

void put_back(std::vector<Rank>& spare, std::vector<Rank> used) {
  for (Rank& rank : used) {
    rank.engine.reset();
    spare.push_back(std::move(rank));
  }
}

}  // namespace

bool decides_on_values(const Scenario& s, const Contract& contract) {
  return contract.clip.max_norm > 0 || s.engine.optimizer.type != OptimizerType::sgd || s.model_dtype != Dtype::float32;
}

Look look_at(const Scenario& scenario, const Timeline& timeline, const LookOptions& options) {
  const ref::ProbeRange range = options.range ? *options.range : ref::probe_range(scenario, timeline);
  const ref::Model::Mode mode = range.dyadic ? ref::Model::Mode::exact : ref::Model::Mode::bounded;
  const ref::FingerprintSource fingerprint(timeline, range, options.seed, options.window_period);
  const ref::PlantedSource planted(fingerprint, timeline);
  const ref::KeptGradients source(planted, scenario, timeline);
  ref::Model model(scenario, timeline, source, mode);
  ref::PassJudge judge(scenario, timeline, model, mode, 0.0);
  Incidents incidents(timeline);
  ref::Tee tee;
  tee.add(&incidents);
  SnapshotsOf snapshots(judge);
  tee.add(options.every_event ? static_cast<TraceSink*>(&judge) : &snapshots);
  thread_local std::vector<Rank> spare;
  const auto producer = make_producer(scenario, timeline, {.engines = options.factory, .devices = options.devices});
  Stand* const stand = options.stand;
  const std::uint32_t since = stand ? stand->events : 0;
  if (since > 0) {
    producer->go_on_from(std::move(stand->ranks));
    judge.seen() = std::move(stand->seen);
  } else {
    producer->take_over(take(spare, scenario.world_size));
  }
  RunOptions run;
  run.linear = true;
  run.observe_events = options.every_event;
  run.schedule.seed = stand ? hash_keys({options.seed, since}) : options.seed;
  if (options.check_streams) run.schedule.policy = Schedule::Policy::first_ready;  // what another order would change is a race
  run.once = stand != nullptr;
  run.check_streams = options.check_streams && search_space_of(scenario).uses_streams(scenario);
  const RunSummary summary = producer->run(source, run, tee);
  if (options.after) options.after(*producer);
  if (stand) *stand = {producer->hand_over(), std::move(judge.seen()), static_cast<std::uint32_t>(timeline.events.size())};
  else put_back(spare, producer->hand_over());

  Look look;
  look.trace_hash = summary.trace_hash;
  look.operations = summary.operations;
  look.compared = judge.statistics().elements;
  TraceHash alike;
  alike.add(search_space_of(scenario).alike(scenario));
  if (incidents.any()) alike.add(incidents.hash());
  look.suspicious = incidents.any();
  if (!judge.mismatches().empty()) {
    const ref::Mismatch& first = *std::min_element(judge.mismatches().begin(), judge.mismatches().end(), [](const auto& a, const auto& b) { return a.key < b.key; });
    look.suspicious = true;
    for (const std::uint64_t word :
         {static_cast<std::uint64_t>(timeline.events[first.key.event].kind()), static_cast<std::uint64_t>(first.role), std::uint64_t{first.step > 0}, mark_of(first.worst)})
      alike.add(word);
  } else if (!incidents.stopped()) {
    const bool lost = any_is_due(timeline, judge.book().not_applied(), since);
    look.suspicious = look.suspicious || lost || (options.every_event && any_since(judge.book().not_reduced(), since));
    alike.add(lost ? 2 : 1);
  }
  look.alike = alike.value();
  return look;
}

}  // namespace gradledger::search
