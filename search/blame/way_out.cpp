#include "search/blame/way_out.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "search/blame/window.h"
#include "search/shrink/edits.h"
#include "sim/base/limits.h"
#include "sim/execution/symbolic/script_rounds.h"
#include "sim/execution/symbolic/steady_rounds.h"
#include "sim/frameworks/code_state.h"
#include "sim/load.h"

namespace gradledger::search {
namespace {

using ref::Finding;
using ref::FindingClass;

// The releases of a framework, compared by one script: the finding's own, or that with fewer ranks.
class Defects {
 public:
  // timeline: of the finding's own script.
  Defects(Scenario scenario, const Timeline& timeline, const Judge& judge, const History& history)
      : scenario_(std::move(scenario)), timeline_(timeline), judge_(judge), history_(history) {}

  // Whether the runs that are compared show it at all.
  bool shows(const Finding& f) {
    const Shown& seen = run(scenario_.engine.as_of);
    return seen && seen->contains({f.finding, window_of(f, timeline_)});
  }

  // Nothing where they do not show it, as what the model does not have of a real framework.
  std::optional<ref::KnownDefect> of(const Finding& f) {
    if (!shows(f)) return std::nullopt;
    for (const Repair& repair : history_.repairs()) {
      const Entry& entry = **entry_named(repair.entry, "");
      if (std::find(entry.classes.begin(), entry.classes.end(), name_of(f.finding)) == entry.classes.end()) continue;
      if (!has_defect(scenario_.engine.as_of, repair) || !cured(f, repair, scenario_.engine.as_of)) continue;
      ref::KnownDefect out{std::string(entry.id),     std::string(entry.name), std::string(entry.title), std::string(entry.origin), "", "",
                           std::string(repair.avoid), scenario_.world_size};
      date(f, repair, out);
      return out;
    }
    return std::nullopt;
  }

 private:
  bool has_defect(const AsOf& as_of, const Repair& repair) const {
    const auto now = history_.switch_value(as_of, repair.name);
    const std::uint32_t stage = framework_of(scenario_).stage(scenario_).value_or(0);
    return now && *now != repair.right && (repair.wrong.empty() || *now == repair.wrong) && repair.stage_min <= stage && stage <= repair.stage_max;
  }

  // The same code with the repair does not show it, nor anything that would keep it from showing.
  bool cured(const Finding& f, const Repair& repair, AsOf as_of) {
    as_of.switches[std::string(repair.name)] = repair.right;
    const Shown& seen = run(as_of);
    if (!seen) return false;
    const std::uint32_t window = window_of(f, timeline_);
    return std::none_of(seen->begin(), seen->end(), [&](const auto& other) { return other.second == window && (other.first == f.finding || stops(other.first)); });
  }
  static bool stops(FindingClass finding) { return finding == FindingClass::deadlock || finding == FindingClass::engine_error || finding == FindingClass::collective_mismatch; }

  // What the scenario shows there, with its windows; nothing where it cannot run.
  using Shown = std::optional<std::set<std::pair<FindingClass, std::uint32_t>>>;
  const Shown& run(const AsOf& as_of) {
    Scenario other = scenario_;
    other.expect = {};
    other.allow_open = true;
    other.engine.as_of = as_of;
    return runs_.of(code_state_of(other), [&] { return shown_by(other); });
  }

  Shown shown_by(const Scenario& other) const {
    if (admission_error(other)) return std::nullopt;
    const auto timeline = make_timeline(other);
    if (!timeline) return std::nullopt;
    Shown out(std::in_place);
    for (const Finding& f : judge_(other, *timeline).findings) out->emplace(f.finding, window_of(f, *timeline));
    return out;
  }

  // The release as it is, but for what the scenario says of other switches.
  AsOf unrepaired(const std::string& release, const Repair& repair) const {
    AsOf out = scenario_.engine.as_of;
    out.base = release;
    out.switches.erase(std::string(repair.name));
    return out;
  }

  bool shows_in(const std::string& release, const Finding& f, const Repair& repair) {
    AsOf there = unrepaired(release, repair);
    if (!has_defect(there, repair)) return false;
    const Shown& seen = run(there);
    const auto of_class = [&](const auto& other) { return other.first == f.finding; };  // in whatever window: other things moved too
    if (!seen || std::none_of(seen->begin(), seen->end(), of_class)) return false;
    there.switches[std::string(repair.name)] = repair.right;
    const Shown& repaired = run(there);
    return repaired && std::none_of(repaired->begin(), repaired->end(), of_class);
  }

  // It has the defect, and something else that the script shows there may be in the way.
  bool may_hide(const std::string& release, const Repair& repair) {
    const AsOf there = unrepaired(release, repair);
    if (!has_defect(there, repair)) return false;
    const Shown& seen = run(there);
    return seen && !seen->empty();
  }

  // The releases around this one that show it; where none does, the latest before it.
  void date(const Finding& f, const Repair& repair, ref::KnownDefect& out) {
    const std::vector<std::string> all = history_.points();
    const std::string& here = scenario_.engine.as_of.base;
    const auto shows = [&](std::size_t at) { return shows_in(all[at], f, repair); };
    const auto named = [&](std::size_t at) { return all[at] + (at == 0 ? " or before" : ""); };
    std::size_t last = 0;
    while (last + 1 < all.size() && !history_.contains_all_of(all[last], here).value_or(true)) ++last;
    while (last > 0 && !shows(last)) --last;
    if (!shows(last)) {
      if (!scenario_.engine.as_of.switches.contains(std::string(repair.name))) out.fixed = named(last);
      return;
    }
    const auto has = [&](std::size_t at) { return shows(at) || may_hide(all[at], repair); };
    std::size_t first = last, fixed = last;
    while (first > 0 && has(first - 1)) --first;
    while (!shows(first)) ++first;
    while (fixed < all.size() && has(fixed)) ++fixed;
    out.since = named(first);
    if (fixed < all.size()) out.fixed = named(fixed);
  }

  const Scenario scenario_;
  const Timeline& timeline_;
  const Judge& judge_;
  const History& history_;
  KnownStates<Shown> runs_;
};

// Which runs are compared: the first that are not too large and show the finding.
class Comparisons {
 public:
  Comparisons(const Scenario& scenario, const Timeline& timeline, const Judge& judge, const Judge& by_weights, const History& history)
      : scenario_(scenario), timeline_(timeline), judge_(judge), by_weights_(by_weights), history_(history), run_one_by_one_(timeline.backwards.size()) {
    for (const ScriptRounds& rounds : rounds_of(scenario, timeline, SteadyRounds::rounds_min))
      run_one_by_one_ -= std::uint64_t{rounds.rounds - SteadyRounds::rounds_min} * rounds.backwards;
  }

  // The finding is of a run of the scenario on numbers, or shown by the runs. Nothing: none can be judged that shows it.
  Defects* showing(const Finding& f) {
    if (fits_numbers(scenario_)) return &of(scenario_.world_size);
    if (fits_weights(scenario_) && of(scenario_.world_size).shows(f)) return &of(scenario_.world_size);
    for (std::uint32_t ranks = 2; ranks < scenario_.world_size; ranks *= 2)
      if (can_stand_for_all(ranks) && of(ranks).shows(f)) return &of(ranks);
    return nullptr;
  }

 private:
  bool fits_numbers(const Scenario& s) const { return fits(s.numel(), s.world_size * timeline_.backwards.size(), limits::compared_elements_max); }
  bool fits_weights(const Scenario& s) const { return by_weights_ && fits(s.parameters.size(), s.world_size * run_one_by_one_, limits::compared_tensors_max); }
  // of_each x contributions <= most, where the product may be beyond 64 bits.
  static bool fits(std::uint64_t of_each, std::uint64_t contributions, std::uint64_t most) { return contributions == 0 || of_each <= most / contributions; }

  // With so many the script has the same events.
  bool can_stand_for_all(std::uint32_t ranks) {
    const auto [at, fresh] = stand_for_all_.try_emplace(ranks, false);
    if (!fresh) return at->second;
    Scenario fewer = scenario_;
    fewer.expect = {};
    fewer.allow_open = true;
    if (!with_fewer_ranks(fewer, ranks) || !(fits_numbers(fewer) || fits_weights(fewer)) || admission_error(fewer)) return false;
    const auto timeline = make_timeline(fewer);
    at->second = timeline.ok() && timeline->events.size() == timeline_.events.size();
    return at->second;
  }

  Defects& of(std::uint32_t ranks) {
    const auto at = defects_.find(ranks);
    if (at != defects_.end()) return at->second;
    Scenario s = scenario_;
    if (ranks < s.world_size) with_fewer_ranks(s, ranks);
    const Judge& judge = fits_numbers(s) ? judge_ : by_weights_;
    return defects_.try_emplace(ranks, std::move(s), timeline_, judge, history_).first->second;
  }

  const Scenario& scenario_;
  const Timeline& timeline_;
  const Judge &judge_, &by_weights_;
  const History& history_;
  std::uint64_t run_one_by_one_;                 // backwards; rounds that repeat are mostly passed by
  std::map<std::uint32_t, bool> stand_for_all_;  // by ranks
  std::map<std::uint32_t, Defects> defects_;     // likewise
};

}  // namespace

void find_known_defects(const Scenario& scenario, const Timeline& timeline, std::vector<Finding>& findings, const Judge& judge, const Judge& by_weights) {
  const History* history = framework_of(scenario).history();
  if (findings.empty() || !history) return;
  Comparisons comparisons(scenario, timeline, judge, by_weights, *history);
  for (Finding& f : findings)
    if (f.blame && f.blame->whose == ref::Whose::framework) {
      Defects* const defects = comparisons.showing(f);
      f.too_large = !defects;
      if (defects) f.known = defects->of(f);
    }
}

}  // namespace gradledger::search
