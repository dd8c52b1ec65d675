#include "search/streams/stream_system.h"

#include <algorithm>
#include <numeric>

#include "sim/base/hash.h"
#include "sim/execution/happens_before.h"
#include "sim/producers/producers.h"
#include "sim/scenario/layout.h"

namespace gradledger::search {
namespace {

class Mismatches final : public TraceSink {
 public:
  void mismatch(const MismatchRecord&) override { any = true; }
  bool any = false;
};

// A stream of a rank by number.
std::size_t process_of(std::size_t rank, Stream stream) { return rank * stream_count + static_cast<std::size_t>(stream); }

bool has(StreamControl::StreamSet set, std::size_t stream) { return (set >> stream & 1u) != 0; }

}  // namespace

StreamSystem::StreamSystem(const Scenario& scenario, const Timeline& timeline, const StreamOrderOptions& options)
    : gradients_(ref::value_source(scenario, timeline, GradientKind::normal, options.seed)), planted_(*gradients_, timeline), operations_(planted_, nobody_) {
  const auto recorder = make_producer(scenario, timeline, {.engines = options.factory, .arithmetic = options.arithmetic, .program_bytes_max = options.program_bytes_max});
  RunOptions run;
  run.linear = true;
  run.observe_events = false;  // its waits are not the framework's
  Mismatches sink;
  recorder->run(planted_, run, sink);
  mismatch_ = sink.any;
  ranks_.resize(scenario.world_size);
  for (std::uint32_t r = 0; r < ranks_.size(); ++r) {
    ranks_[r].program = recorder->ranks()[r].program;
    if (options.alter) options.alter(r, ranks_[r].program);
    states_.emplace_back(ranks_[r], r, operations_, contents_);
  }
  if (!mismatch_) meetings_ = std::make_unique<Meetings>(ranks_, process_groups(scenario), options.arithmetic, contents_);
}

std::vector<RaceRecord> StreamSystem::races() const {
  std::vector<RaceRecord> all;
  for (std::uint32_t r = 0; r < ranks_.size(); ++r) {
    const std::vector<RaceRecord> of_rank = stream_races(ranks_[r].program, r);
    all.insert(all.end(), of_rank.begin(), of_rank.end());
  }
  return all;
}

bool StreamSystem::receives() const {
  return std::any_of(ranks_.begin(), ranks_.end(),
                     [](const Rank& rank) { return std::any_of(rank.program.ops.begin(), rank.program.ops.end(), [](const Op& op) { return op.kind == OpKind::receive; }); });
}

void StreamSystem::step(SystemState& state, StreamDecision decision) {
  state[decision.rank] = states_[decision.rank].step(state[decision.rank], decision.stream);
  if (has(choices(state, decision.rank).contributed, static_cast<std::size_t>(decision.stream))) meet(state, decision);
}

// Once the last member has contributed, each of them can be given its result.
void StreamSystem::meet(SystemState& state, StreamDecision last) {
  const auto head = [&](std::uint32_t rank, Stream stream) { return states_[rank].progress(state[rank]).head[static_cast<std::size_t>(stream)]; };
  const std::uint32_t op = head(last.rank, last.stream);
  const std::span<const Meetings::Member> members = meetings_->members(last.rank, op);
  std::vector<ContentId> inputs;
  for (const Meetings::Member& member : members) {
    if (member.op == no_index || head(member.rank, member.stream) != member.op) return;
    if (!has(choices(state, member.rank).contributed, static_cast<std::size_t>(member.stream))) return;
    inputs.push_back(states_[member.rank].contribution(state[member.rank], member.stream));
  }
  const std::vector<ContentId>& results = meetings_->results(last.rank, op, std::move(inputs));
  for (std::size_t i = 0; i < members.size(); ++i) {
    const std::uint32_t r = members[i].rank;
    state[r] = states_[r].deliverable(state[r], members[i].stream, results[i]);
  }
}

bool StreamSystem::finished(const SystemState& state) const {
  for (std::size_t r = 0; r < state.size(); ++r)
    if (!states_[r].progress(state[r]).finished()) return false;
  return true;
}

std::vector<std::uint32_t> StreamSystem::progress(std::span<const StateId> state) const {
  std::vector<std::uint32_t> all;
  for (std::size_t r = 0; r < state.size(); ++r) all.push_back(states_[r].progress_number(state[r]));
  return all;
}

StreamOutcome StreamSystem::outcome(const SystemState& state) const {
  StreamOutcome all;
  for (std::size_t r = 0; r < state.size(); ++r) {
    const RankStates::Hashes hashes = states_[r].hashes(state[r]);
    all.values += hashes.values;
    all.memory += hashes.memory;
  }
  return all;
}

std::vector<std::vector<std::vector<std::byte>>> StreamSystem::memory(const SystemState& state) const {
  std::vector<std::vector<std::vector<std::byte>>> all(state.size());
  for (std::size_t r = 0; r < state.size(); ++r)
    for (BufferId b = 0; b < ranks_[r].program.buffers.size(); ++b) {
      const auto contents = states_[r].contents(state[r], b);
      all[r].emplace_back(contents.begin(), contents.end());
    }
  return all;
}

// ---- which steps are taken --------------------------------------------------------------------------------------------------------------

std::vector<StreamDecision> StreamSystem::all_choices(const SystemState& state) const {
  std::vector<StreamDecision> all;
  for (std::size_t r = 0; r < state.size(); ++r)
    for (std::size_t s = 0; s < stream_count; ++s)
      if (has(choices(state, r).enabled, s)) all.push_back({static_cast<std::uint16_t>(r), static_cast<Stream>(s)});
  return all;
}

std::uint64_t StreamSystem::settle(SystemState& state, std::vector<StreamDecision>* taken) {
  std::uint64_t steps = 0;
  std::vector<Stream> streams;
  for (bool moved = true; moved;) {
    moved = false;
    for (std::uint16_t r = 0; r < state.size(); ++r) {
      streams.clear();
      const RankStates::Settled settled = states_[r].settle(state[r], taken ? &streams : nullptr);
      for (Stream stream : streams) taken->push_back({r, stream});
      if (settled.steps == 0) continue;
      steps += settled.steps;
      moved = true;
      state[r] = settled.state;
      const StreamControl::StreamSet contributed = choices(state, r).contributed;
      for (std::size_t s = 0; s < stream_count; ++s)
        if (has(contributed, s)) meet(state, {r, static_cast<Stream>(s)});
    }
  }
  return steps;
}

// Every closed set of streams yields a persistent set, the heads in it that may run: until one of these has run no stream of the set moves
// at all, since one whose head waits has a stream in the set that must move first; and the rest meets none of them in memory, or it
// would be in the set. Ranks share no memory, so those that are drawn in are the ones that a collective waits for.
std::vector<StreamDecision> StreamSystem::persistent_choices(const SystemState& state) const {
  std::vector<StreamDecision> best;
  for (const StreamDecision& from : all_choices(state)) {
    std::vector<StreamDecision> set;
    for (std::size_t process : closure(state, process_of(from.rank, from.stream))) {
      const StreamDecision decision{static_cast<std::uint16_t>(process / stream_count), static_cast<Stream>(process % stream_count)};
      if (enabled(state, decision)) set.push_back(decision);
    }
    if (best.empty() || set.size() < best.size()) best = std::move(set);
    if (best.size() == 1) break;
  }
  std::sort(best.begin(), best.end(), [](const StreamDecision& a, const StreamDecision& b) { return process_of(a.rank, a.stream) < process_of(b.rank, b.stream); });
  return best;
}

std::vector<std::size_t> StreamSystem::closure(const SystemState& state, std::size_t from) const {
  std::vector<std::uint8_t> in(state.size() * stream_count, 0);
  std::vector<std::size_t> all{from};
  in[from] = 1;
  for (std::size_t at = 0; at < all.size(); ++at) draw_in(state, all[at], in, all);
  return all;
}

void StreamSystem::draw_in(const SystemState& state, std::size_t process, std::vector<std::uint8_t>& in, std::vector<std::size_t>& all) const {
  const auto add = [&](std::size_t other) {
    if (in[other] == 0) all.push_back(other);
    in[other] = 1;
  };
  const std::size_t r = process / stream_count, s = process % stream_count;
  const StreamControl::Choices& here = choices(state, r);
  const Progress& progress = states_[r].progress(state[r]);
  if (has(here.enabled, s)) {
    for (std::size_t other = 0; other < stream_count; ++other)
      if (has(here.meets[s], other)) add(process_of(r, static_cast<Stream>(other)));
    return;
  }
  if (!has(here.contributed, s)) return add(process_of(r, states_[r].control().waits_for(progress, static_cast<Stream>(s))));
  for (const Meetings::Member& member : meetings_->members(static_cast<std::uint32_t>(r), progress.head[s])) {
    if (member.op == no_index) return;  // it waits for ever
    const bool there = states_[member.rank].progress(state[member.rank]).head[static_cast<std::size_t>(member.stream)] == member.op &&
                       has(choices(state, member.rank).contributed, static_cast<std::size_t>(member.stream));
    if (!there) return add(process_of(member.rank, member.stream));
  }
}

std::uint64_t StreamSystem::rank_states() const {
  return std::accumulate(states_.begin(), states_.end(), std::uint64_t{0}, [](std::uint64_t sum, const RankStates& r) { return sum + r.size(); });
}

std::uint64_t StreamSystem::bytes() const {
  return std::accumulate(states_.begin(), states_.end(), contents_.bytes(), [](std::uint64_t sum, const RankStates& r) { return sum + r.bytes(); });
}

}  // namespace gradledger::search
