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

// Whether any does.
bool raise_in(std::vector<ScriptItem>& items, std::uint32_t gradients, Draws& draws) {
  bool any = false;
  for (ScriptItem& item : items) {
    any = raise_in(item.items, gradients, draws) || any;
    if (item.kind != ScriptKind::backward || !draws.one_in(4)) continue;
    item.raises_after = draws.below(gradients + 1);
    any = true;
  }
  return any;
}

// Backwards that raise, and loops that go on behind them, where the framework's model has such. On a copy of the draws: what a seed means for the rest stays.
void draw_exceptions(const Profile& profile, Draws aside, const Swarm& swarm, Scenario& out) {
  if (profile.as_documented || !swarm.takes(Feature::raises, aside)) return;
  Scenario raising = out;
  if (!raise_in(raising.script, static_cast<std::uint32_t>(out.parameters.size()), aside)) return;
  raising.after_error = aside.one_in(3) ? AfterError::stop : AfterError::go_on;
  if (admitted(raising)) out = std::move(raising);
}

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
    draw_exceptions(profile, draws, swarm, out);
    make_canonical(out);
    if (!admitted(out)) continue;
    auto timeline = make_timeline(out);
    if (timeline && profile.as_documented) ensures(framework.use_of(out, *timeline).misuses.empty(), "a documented case keeps to the documentation");
    if (timeline) return {std::move(out), std::move(timeline).value()};
  }
}

Scenario draw(const Profile& profile, std::uint64_t seed, std::uint64_t number) { return draw_case(profile, seed, number).scenario; }

}  // namespace gradledger::search
