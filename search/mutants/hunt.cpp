#include "search/mutants/hunt.h"

#include <algorithm>
#include <utility>

#include "ref/oracle.h"
#include "search/draw/generator.h"
#include "sim/load.h"
#include "sim/producers/producers.h"

namespace gradledger::search {
namespace {

bool has(const std::vector<ref::FindingClass>& classes, ref::FindingClass finding) { return std::find(classes.begin(), classes.end(), finding) != classes.end(); }

bool serves(const Scenario& scenario) { return !admission_error(scenario) && make_timeline(scenario).ok(); }

Hunt hunt_in(const Profile& profile, const Mutant& mutant, std::uint64_t seed, std::uint32_t cases_max) {
  Hunt out;
  // What a mutant requires may be refused together with what was drawn; then the next case is.
  for (std::uint64_t number = 0; out.cases < cases_max && number < std::uint64_t{cases_max} * 4; ++number) {
    Scenario scenario = draw(profile, seed, number);
    if (mutant.require) mutant.require(scenario);
    if (!serves(scenario)) continue;
    ++out.cases;
    out.reported = reported_classes(scenario, with_fault(mutant), seed);
    std::vector<ref::FindingClass> fitting;
    std::copy_if(out.reported.begin(), out.reported.end(), std::back_inserter(fitting), [&](ref::FindingClass c) { return has(mutant.classes, c); });
    if (fitting.empty()) continue;
    const std::vector<ref::FindingClass> without = reported_classes(scenario, EngineFactory(), seed);
    out.found = std::any_of(fitting.begin(), fitting.end(), [&](ref::FindingClass c) { return !has(without, c); });
    if (!out.found) continue;
    out.scenario = std::move(scenario);
    return out;
  }
  return out;
}

}  // namespace

std::vector<ref::FindingClass> reported_classes(const Scenario& scenario, EngineFactory factory, std::uint64_t seed) {
  const auto timeline = make_timeline(scenario);
  expects(timeline.ok(), "a case that is judged was admitted");
  const auto producer = make_producer(scenario, *timeline, {.engines = std::move(factory)});
  ref::OracleOptions options;
  options.seed = options.schedule.seed = seed;
  std::vector<ref::FindingClass> out;
  for (const ref::Finding& finding : ref::judge(scenario, *timeline, *producer, options).findings)
    if (!has(out, finding.finding)) out.push_back(finding.finding);
  return out;
}

Hunt hunt(const Mutant& mutant, std::uint64_t seed, std::uint32_t cases_max) {
  Profile profile;
  profile.as_documented = true;
  for (const std::string_view name : mutant.variants)
    if (const Variant* variant = *variant_named(name, ""); profile.variants.empty() || &framework_of(*variant) == &framework_of(*profile.variants.front()))
      profile.variants.push_back(variant);
  return hunt_in(profile, mutant, seed, cases_max);
}

Hunt hunt(const Mutant& mutant, std::string_view variant, std::uint64_t seed, std::uint32_t cases_max) {
  Profile profile;
  profile.as_documented = true;
  profile.variants = {*variant_named(variant, "")};
  return hunt_in(profile, mutant, seed, cases_max);
}

}  // namespace gradledger::search
