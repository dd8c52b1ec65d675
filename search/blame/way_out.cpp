#include "search/blame/way_out.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "search/blame/window.h"
#include "sim/base/limits.h"
#include "sim/frameworks/code_state.h"
#include "sim/load.h"

namespace gradledger::search {
namespace {

using ref::Finding;
using ref::FindingClass;

class Defects {
 public:
  Defects(const Scenario& scenario, const Timeline& timeline, const Judge& judge, const History& history)
      : scenario_(scenario), timeline_(timeline), judge_(judge), history_(history) {}

  // Whether the runs that are compared show it at all.
  bool shows(const Finding& f) {
    const Shown& seen = run(scenario_.engine.as_of);
    return seen && seen->contains({f.finding, window_of(f, timeline_)});
  }

  std::optional<ref::KnownDefect> of(const Finding& f) {
    for (const Repair& repair : history_.repairs()) {
      const Entry& entry = **entry_named(repair.entry, "");
      if (std::find(entry.classes.begin(), entry.classes.end(), name_of(f.finding)) == entry.classes.end()) continue;
      if (!has_defect(scenario_.engine.as_of, repair) || !cured(f, repair, scenario_.engine.as_of)) continue;
      ref::KnownDefect out{std::string(entry.id), std::string(entry.name), std::string(entry.title), std::string(entry.origin), "", "", std::string(repair.avoid)};
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

  bool shows_in(const std::string& release, const Finding& f, const Repair& repair) {
    AsOf there = scenario_.engine.as_of;
    there.base = release;
    there.switches.erase(std::string(repair.name));
    if (!has_defect(there, repair)) return false;
    const Shown& seen = run(there);
    const auto of_class = [&](const auto& other) { return other.first == f.finding; };  // in whatever window: other things moved too
    if (!seen || std::none_of(seen->begin(), seen->end(), of_class)) return false;
    there.switches[std::string(repair.name)] = repair.right;
    const Shown& repaired = run(there);
    return repaired && std::none_of(repaired->begin(), repaired->end(), of_class);
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
    std::size_t first = last, fixed = last;
    while (first > 0 && shows(first - 1)) --first;
    while (fixed < all.size() && shows(fixed)) ++fixed;
    out.since = named(first);
    if (fixed < all.size()) out.fixed = named(fixed);
  }

  const Scenario& scenario_;
  const Timeline& timeline_;
  const Judge& judge_;
  const History& history_;
  KnownStates<Shown> runs_;
};

}  // namespace

void find_known_defects(const Scenario& scenario, const Timeline& timeline, std::vector<Finding>& findings, const Judge& judge, const Judge& by_weights) {
  const History* history = framework_of(scenario).history();
  if (findings.empty() || !history) return;
  const std::uint64_t contributions = scenario.world_size * timeline.backwards.size();
  const bool on_numbers = scenario.numel() * contributions <= limits::compared_elements_max;
  const bool too_large = !on_numbers && (!by_weights || scenario.parameters.size() * contributions > limits::compared_tensors_max);
  Defects defects(scenario, timeline, on_numbers ? judge : by_weights, *history);
  for (Finding& f : findings)
    if (f.blame && f.blame->whose == ref::Whose::framework) {
      f.too_large = too_large || (!on_numbers && !defects.shows(f));
      if (!f.too_large) f.known = defects.of(f);
    }
}

}  // namespace gradledger::search
