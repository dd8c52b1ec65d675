#include "search/campaign/rows.h"

#include <algorithm>
#include <set>

#include "search/shrink/shrink.h"
#include "sim/base/hash.h"
#include "sim/load.h"

namespace gradledger::search {
namespace {

std::set<ref::FindingClass> classes_at(Scenario scenario, const AsOf& as_of) {
  scenario.engine.as_of = as_of;
  std::set<ref::FindingClass> out;
  if (admission_error(scenario)) return out;
  const auto timeline = make_timeline(scenario);
  for (const ref::Finding& f : judge_case(scenario, *timeline, {}).findings) out.insert(f.finding);
  return out;
}

// Whether a quick look is enough to pass a case by.
bool seen_by_probes(ref::FindingClass c) {
  using enum ref::FindingClass;
  return c != rank_divergence && c != rounding_excess && c != wrong_skip && c != wrong_norm && c != nonfinite_missed;
}

}  // namespace

std::optional<ref::FindingClass> shown_by(const Scenario& scenario, const KnownDefect& defect) {
  if (!defect.without && engine_of(scenario) != defect.engine) return std::nullopt;
  const auto with = classes_at(scenario, defect.with);
  for (const ref::FindingClass c : defect.classes) {
    if (!with.contains(c)) continue;
    if (!defect.without) return c;
    Scenario repaired = scenario;
    repaired.engine.as_of = *defect.without;
    if (!admission_error(repaired) && !classes_at(scenario, *defect.without).contains(c)) return c;
  }
  return std::nullopt;
}

RowHunt hunt_row(const KnownDefect& defect, std::uint64_t seed, std::uint32_t cases_max, const std::function<bool()>& stop) {
  Profile profile;
  profile.as_of = defect.with;
  if (defect.framework)
    for (const Variant& variant : defect.framework->search_space()->variants()) profile.variants.push_back(&variant);
  const bool look_first = std::all_of(defect.classes.begin(), defect.classes.end(), seen_by_probes);
  RowHunt out;
  while (out.cases < cases_max && !out.found && !stop()) {
    Scenario scenario = draw(profile, seed, out.cases++);
    try {
      const auto timeline = make_timeline(scenario);
      if (look_first && !look_at(scenario, *timeline, {}).suspicious) continue;
      out.finding = shown_by(scenario, defect);
    } catch (const ContractViolation&) {
      continue;  // counted by campaigns
    }
    if (!out.finding) continue;
    out.found = true;
    const std::string engine = engine_of(scenario);
    const auto shows = [&](const Scenario& s) {
      try {
        return engine_of(s) == engine && shown_by(s, defect) == out.finding;
      } catch (const ContractViolation&) {
        return false;
      }
    };
    out.smallest = shrink(scenario, shows, {.tried_max = 1500, .stop = stop}).scenario;
    out.events = static_cast<std::uint32_t>(events_of(out.smallest.script));
    out.scenario = std::move(scenario);
  }
  return out;
}

}  // namespace gradledger::search
