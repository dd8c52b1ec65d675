#include "search/draw/generator.h"

#include <string>

#include "search/shrink/edits.h"
#include "search/draw/script.h"
#include "search/draw/swarm.h"
#include "search/draw/world.h"
#include "sim/base/hash.h"
#include "sim/frameworks/search_space.h"
#include "sim/load.h"
#include "sim/scenario/layout.h"

namespace gradledger::search {
namespace {

bool admitted(const Scenario& scenario) { return !layout_problem(scenario) && !admission_error(scenario); }

}  // namespace

const Framework& framework_of(const Profile& profile) { return profile.variants.empty() ? default_framework() : framework_of(*profile.variants.front()); }

Drawn draw_case(const Profile& profile, std::uint64_t seed, std::uint64_t number) {
  const Framework& framework = framework_of(profile);
  expects(!framework.as_of_problem(profile.as_of), "a campaign's as_of was checked");
  const SearchSpace& space = *framework.search_space();
  // What is refused is drawn again, in the end with no features at all.
  constexpr std::uint32_t attempts_max = 64;
  for (std::uint32_t attempt = 0;; ++attempt) {
    expects(attempt < attempts_max, "a campaign's profile is served");
    Draws draws{rc::Random(hash_keys({seed, number, attempt}))};
    Swarm swarm(draws, space.features());
    for (const FeatureInfo& f : space.features())
      if (profile.as_documented && !f.documented) swarm.turn_off(f.feature);
    if (attempt >= attempts_max / 2) swarm.turn_all_off();
    Scenario out;
    out.engine.framework = framework.id();
    out.name = "case-" + std::to_string(seed) + "-" + std::to_string(number);
    draw_world(profile, draws, swarm, out);
    if (profile.as_documented) space.leave_out_open_defects(out);
    if (select_engine(out).ok() == false) continue;
    draw_script(profile, draws, swarm, out);
    make_canonical(out);
    if (!admitted(out)) continue;
    auto timeline = make_timeline(out);
    if (timeline && profile.as_documented) ensures(framework.use_of(out, *timeline).misuses.empty(), "a documented case keeps to the documentation");
    if (timeline) return {std::move(out), std::move(timeline).value()};
  }
}

Scenario draw(const Profile& profile, std::uint64_t seed, std::uint64_t number) { return draw_case(profile, seed, number).scenario; }

}  // namespace gradledger::search
