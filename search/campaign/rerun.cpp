#include "search/campaign/rerun.h"

#include <algorithm>

#include <fmt/format.h>

#include "ref/probes.h"

namespace gradledger::search {

std::string differs_in_rerun(const Scenario& scenario, const Timeline& timeline, const LookOptions& options) {
  const ref::FingerprintSource fingerprint(timeline, ref::probe_range(scenario, timeline), options.seed);
  const ref::PlantedSource source(fingerprint, timeline);
  RunOptions run;
  run.schedule.seed = options.seed;
  run.log_decisions = true;
  const auto once = [&] {
    TraceSink nobody;
    return make_producer(scenario, timeline, {.engines = options.factory, .devices = options.devices})->run(source, run, nobody);
  };
  const RunSummary first = once();
  return first_parting(first, once());
}

std::string first_parting(const RunSummary& one, const RunSummary& other) {
  const std::size_t common = std::min(one.decision_hashes.size(), other.decision_hashes.size());
  for (std::size_t d = 0; d < common; ++d)
    if (one.decision_hashes[d] != other.decision_hashes[d]) return fmt::format("two runs of one seed part at step {} of {} of the schedule", d, one.decision_hashes.size());
  if (one.decision_hashes.size() != other.decision_hashes.size())
    return fmt::format("two runs of one seed take {} and {} steps of the schedule", one.decision_hashes.size(), other.decision_hashes.size());
  return one.trace_hash == other.trace_hash ? "" : "two runs of one seed end with different traces";
}

}  // namespace gradledger::search
