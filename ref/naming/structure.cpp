#include "ref/naming/naming.h"

#include <fmt/format.h>

#include "ref/describe.h"

namespace gradledger::ref {

void Naming::name_structural() {
  const RunFacts& facts = verdict_.facts;
  for (const EngineErrorRecord& error : facts.engine_errors)
    add(FindingClass::engine_error, error.event, error.rank).sentence =
        fmt::format("engine-error: rank {} raises {} ({}) at {}.", error.rank, error.type, error.message, timeline_.describe(error.event));
  if (facts.mismatch) {
    std::string calls;
    for (const CollectiveRecord& call : facts.mismatch->calls)
      calls += fmt::format("{}rank {} calls {} at event {}", calls.empty() ? "" : "; ", call.rank, call.text(), call.event);
    const CollectiveRecord& first = facts.mismatch->calls.front();
    add(FindingClass::collective_mismatch, first.event, first.rank).sentence =
        fmt::format("collective-mismatch: collective {} differs in {}: {}.", first.sequence, facts.mismatch->what, calls);
  }
  if (facts.deadlock) name_deadlock(*facts.deadlock);
  for (const RaceRecord& race : facts.races) name_race(race);
  for (const UnwrittenRecord& record : facts.unwritten) {
    if (races_before(timeline_.events[record.event].step)) continue;
    Finding& finding = add(FindingClass::unwritten_memory, record.event, record.rank);
    finding.buffer = record.buffer;
    finding.sentence = fmt::format("unwritten-memory: rank {}, {}: {} reads {}[{}:{}], which was {}.", record.rank, timeline_.describe(record.event), record.reader, record.buffer,
                                   record.begin, record.end, record.released ? "released" : "never written");
  }
}

void Naming::name_race(const RaceRecord& record) {
  if (Finding* known = find(FindingClass::stream_race, timeline_.events[record.event].step, record.rank)) {
    ++known->race->others;
    known->race->further.push_back(record);
    return also_in(*known, record.buffer);
  }
  Finding& finding = add(FindingClass::stream_race, record.event, record.rank);
  finding.buffer = record.buffer;
  finding.race = Race{record, 0, {}, evidence_.race_seed, evidence_.race_schedules};
  first_race_ = std::min(first_race_, finding.step);
  finding.sentence = race_text(*finding.race, timeline_);
}

// From here on anything may follow from the race in this schedule.
bool Naming::races_before(std::uint32_t step) const { return first_race_ <= step; }

void Naming::name_deadlock(const DeadlockRecord& deadlock) {
  std::string ranks;
  const WaitingRank* first = nullptr;
  for (const WaitingRank& waiting : deadlock.ranks) {
    ranks += ranks.empty() ? "" : "; ";
    if (waiting.collective) {
      ranks += fmt::format("rank {} waits in {} since event {}", waiting.rank, waiting.collective->text(), waiting.event);
      if (!first) first = &waiting;
    } else if (waiting.sender) {
      ranks += fmt::format("rank {} waits for what rank {} sends it since event {}", waiting.rank, *waiting.sender, waiting.event);
      if (!first) first = &waiting;
    } else {
      ranks += fmt::format("rank {} {} at event {}", waiting.rank, waiting.finished ? "ended" : "stands", waiting.event);
    }
  }
  const WaitingRank& at = first ? *first : deadlock.ranks.front();
  add(FindingClass::deadlock, at.event, at.rank).sentence = fmt::format("deadlock: {}.", ranks);
}

}  // namespace gradledger::ref
