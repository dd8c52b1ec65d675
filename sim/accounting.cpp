#include "sim/accounting.h"

#include <algorithm>

#include "sim/base/overloaded.h"
#include "sim/execution/symbolic/steady_rounds.h"
#include "sim/frameworks/framework.h"

namespace gradledger {
namespace {

constexpr bool is_gradient_memory(BufferPurpose purpose) {
  return purpose == BufferPurpose::gradients || purpose == BufferPurpose::buckets || purpose == BufferPurpose::accumulators;
}

void add(MemoryBytes& bytes, BufferPurpose purpose, bool allocated, std::uint64_t amount) {
  const auto apply = [&](std::size_t kind) {
    expects(allocated || bytes[kind] >= amount, "more memory is released than was allocated");
    bytes[kind] = allocated ? bytes[kind] + amount : bytes[kind] - amount;
  };
  apply(static_cast<std::size_t>(purpose));
  if (is_gradient_memory(purpose)) apply(gradient_memory);
  apply(all_memory);
}

CollectiveKey key_of(const CollectiveRecord& record) { return {record.purpose, record.kind, record.group, record.dtype}; }

CollectiveAccount payload_of(const CollectiveRecord& record) { return {1, record.numel, std::uint64_t{record.numel} * size_of(record.dtype)}; }

void add(CollectiveAccount& to, const CollectiveAccount& more) {
  to.count += more.count;
  to.elements += more.elements;
  to.bytes += more.bytes;
}

void raise_to(MemoryBytes& peak, const MemoryBytes& now) {
  for (std::size_t kind = 0; kind < memory_kinds; ++kind) peak[kind] = std::max(peak[kind], now[kind]);
}

}  // namespace

std::string_view name_of(Phase phase) {
  switch (phase) {
    case Phase::accumulate: return "accumulate";
    case Phase::boundary: return "boundary";
    case Phase::step: return "step";
    case Phase::between: return "between";
  }
  return "";
}

std::string_view memory_kind_name(std::size_t kind) {
  if (kind == gradient_memory) return "gradient memory";
  if (kind == all_memory) return "all";
  return name_of(static_cast<BufferPurpose>(kind));
}

std::optional<std::size_t> memory_kind_named(std::string_view name) {
  for (std::size_t kind = 0; kind < memory_kinds; ++kind)
    if (memory_kind_name(kind) == name) return kind;
  return std::nullopt;
}

CollectiveAccount PhaseAccount::total(Purpose purpose) const {
  CollectiveAccount out;
  for (const auto& [key, account] : collectives) {
    if (std::get<Purpose>(key) == purpose) add(out, account);
  }
  return out;
}

CollectiveAccount WindowAccount::total(Purpose purpose) const {
  CollectiveAccount out;
  for (const PhaseAccount& phase : phases) {
    add(out, phase.total(purpose));
  }
  return out;
}

// A backward inside a block reduces nothing, wherever the boundary is; a coalesced block reduces at its end.
std::vector<Phase> phases_of(const Timeline& timeline) {
  using namespace events;
  std::vector<Phase> out;
  std::uint32_t depth = 0;
  for (const Event& event : timeline.events) {
    if (event.is<EnterNoSync>() || event.is<EnterCoalesce>()) ++depth;
    if (event.is<ExitNoSync>() || event.is<ExitCoalesce>()) --depth;
    out.push_back(
        std::visit(overloaded{[](const Forward&) { return Phase::accumulate; },
                              [&](const events::Backward& backward) { return timeline.backwards[backward.ordinal].boundary && depth == 0 ? Phase::boundary : Phase::accumulate; },
                              [](const Step&) { return Phase::step; }, [](const ExitCoalesce&) { return Phase::boundary; },
                              [](const one_of<SetBoundary, EnterNoSync, ExitNoSync, EnterCoalesce, EngineZeroGrad, OptimizerZeroGrad, SetGradient, Raise, ScaleGradients,
                                              ClipGradients, AllReduce, Finalize, Save, Restore, Unscale, OfFramework> auto&) { return Phase::between; }},
                   event.body));
  }
  return out;
}

RunOptions accounting_run(const Scenario& scenario, const Timeline& timeline) {
  RunOptions run{.observe_events = false, .linear = true, .once = true};
  const bool repeats = !rounds_of(scenario, timeline, SteadyRounds::rounds_min).empty();
  run.dry = !repeats;
  run.weights = run.check_streams = repeats;  // ranks that do the same are known by the check of their streams
  return run;
}

std::uint64_t accounting_bytes(const Timeline& timeline) { return std::uint64_t{timeline.world_size} * timeline.steps * sizeof(WindowAccount); }

AccountingSink::AccountingSink(const Scenario& scenario, const Timeline& timeline)
    : timeline_(timeline),
      phases_(phases_of(timeline)),
      purposes_(purposes_of_buffers(scenario)),
      changes_(timeline.world_size),
      reached_(timeline.world_size, 0),
      repeats_(timeline.events.size(), no_index),
      is_repeated_(timeline.events.size()) {
  out_.ranks.resize(timeline.world_size);
  for (RankAccount& rank : out_.ranks) rank.windows.resize(timeline.steps);
  out_.windows_closed = timeline.steps - (timeline.open_window ? 1 : 0);
}

PhaseAccount& AccountingSink::phase_at(std::uint32_t rank, std::uint32_t event) {
  PhaseAccount& phase = out_.ranks[rank].windows[timeline_.events[event].step].phases[static_cast<std::size_t>(phases_[event])];
  phase.happened = true;
  return phase;
}

void AccountingSink::collective(const CollectiveRecord& record) { add(phase_at(record.rank, record.event).collectives[key_of(record)], payload_of(record)); }

void AccountingSink::round_again(KeptRound& round) {
  if (round.round() == 1) {
    round_.clear();
    for (const KeptRound::Entry& entry : round.entries()) {
      if (entry.kind == KeptRound::Kind::event_done) round_[{entry.rank, entry.index}];
      if (entry.kind != KeptRound::Kind::collective) continue;
      const CollectiveRecord& call = round.collective(entry.index);
      add(round_[{entry.rank, call.event}][key_of(call)], payload_of(call));
    }
  }
  for (const auto& [where, sent] : round_) {
    const auto [rank, event] = std::pair(where.first, where.second + round.events_later());
    PhaseAccount& phase = phase_at(rank, event);
    for (const auto& [key, account] : sent) add(phase.collectives[key], account);
    event_done(rank, event);
    repeats_[event] = where.second;
    is_repeated_[where.second] = true;
  }
}

BufferPurpose AccountingSink::purpose_of(std::string_view buffer) {
  const auto known = known_.find(buffer);
  if (known != known_.end()) return known->second;
  return known_.emplace(buffer, purposes_.of(buffer)).first->second;
}

void AccountingSink::memory(const MemoryRecord& r) { changes_[r.rank].push_back({r.order, r.event, r.at_start, r.allocated, purpose_of(r.buffer), r.space, r.bytes}); }

// Of several ranks the lowest is told, whichever came first.
void AccountingSink::engine_error(const EngineErrorRecord& r) {
  if (out_.stopped && r.rank >= stopped_rank_) return;
  stopped_rank_ = r.rank;
  out_.stopped = "rank " + std::to_string(r.rank) + ", " + timeline_.describe(r.event) + ": " + r.type + ": " + r.message;
}

void AccountingSink::deadlock(const DeadlockRecord& r) {
  for (const WaitingRank& rank : r.ranks)
    if (!out_.stopped && !rank.finished) out_.stopped = "rank " + std::to_string(rank.rank) + ", " + timeline_.describe(rank.event) + ": waits for ranks that do not come";
}

void AccountingSink::mismatch(const MismatchRecord& r) {
  if (!out_.stopped) out_.stopped = timeline_.describe(r.calls.front().event) + ": ranks call different collectives";
}

Accounting AccountingSink::take() {
  for (std::uint32_t r = 0; r < timeline_.world_size; ++r) account(r, changes_[r]);
  return std::move(out_);
}

// Streams report their operations as they run; the host's order is that of the program.
void AccountingSink::account(std::uint32_t r, std::vector<Change>& changes) {
  using PerSpace = std::array<SpaceAccount, space_count>;
  std::sort(changes.begin(), changes.end(), [](const Change& a, const Change& b) { return a.order < b.order; });
  RankAccount& rank = out_.ranks[r];
  std::array<MemoryBytes, space_count> now{};
  std::size_t next = 0;
  const auto apply = [&](const Change& change) { add(now[static_cast<std::size_t>(change.space)], change.purpose, change.allocated, change.bytes); };
  for (; next < changes.size() && changes[next].at_start; ++next) apply(changes[next]);
  rank.start = now;
  std::map<std::uint32_t, PerSpace> repeated;  // of events that others repeat
  for (std::uint32_t e = 0; e < timeline_.events.size(); ++e) {
    const bool changes_here = next < changes.size() && changes[next].event == e;
    if (!changes_here && (e >= reached_[r] || !timeline_.events[e].runs_on(r))) continue;
    PerSpace held;
    if (repeats_[e] != no_index) held = repeated.at(repeats_[e]);
    else {
      for (std::size_t s = 0; s < space_count; ++s) held[s].peak = now[s];
      for (; next < changes.size() && changes[next].event == e; ++next) {
        apply(changes[next]);
        const auto s = static_cast<std::size_t>(changes[next].space);
        raise_to(held[s].peak, now[s]);
      }
      for (std::size_t s = 0; s < space_count; ++s) held[s].resident = now[s];
      if (is_repeated_[e]) repeated[e] = held;
    }
    PhaseAccount& phase = phase_at(r, e);
    for (std::size_t s = 0; s < space_count; ++s) {
      raise_to(phase.space[s].peak, held[s].peak);
      phase.space[s].resident = held[s].resident;
    }
  }
}

}  // namespace gradledger
