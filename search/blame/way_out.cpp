#include "search/blame/way_out.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "search/blame/window.h"
#include "sim/base/limits.h"
#include "sim/frameworks/deepspeed/behaviour.h"
#include "sim/frameworks/deepspeed/settings.h"
#include "sim/load.h"
#include "sim/scenario/catalogue.h"
#include "sim/frameworks/deepspeed/history.h"
#include "sim/frameworks/deepspeed/repairs.h"

namespace gradledger::search {
namespace {

using ref::Finding;
using ref::FindingClass;

// A release, or what comes after the newest of them.
struct Point {
  std::string name;
  PointInHistory at;
};

std::vector<Point> points() {
  std::vector<Point> out;
  for (const ReleaseInfo& r : releases()) out.push_back({std::string(r.first), *point_named(r.first, "")});
  if (!(out.back().at == head())) out.push_back({"head", head()});
  return out;
}

class Defects {
 public:
  Defects(const Scenario& scenario, const Timeline& timeline, const Judge& judge) : scenario_(scenario), timeline_(timeline), judge_(judge) {}

  std::optional<ref::KnownDefect> of(const Finding& f) {
    for (const Repair& repair : repairs()) {
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
    const auto behaviour = resolve_behaviour(as_of);
    if (!behaviour) return false;
    const std::string_view now = switch_value(*behaviour, repair.name);
    const std::uint32_t stage = deepspeed_config(scenario_).zero.stage;
    return now != repair.right && (repair.wrong.empty() || now == repair.wrong) && repair.stage_min <= stage && stage <= repair.stage_max;
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
    const auto [at, fresh] = runs_.try_emplace({as_of.base, as_of.switches});
    if (!fresh) return at->second;
    Scenario other = scenario_;
    other.expect = {};
    other.allow_open = true;
    other.engine.as_of = as_of;
    if (admission_error(other)) return at->second;
    const auto timeline = make_timeline(other);
    if (!timeline) return at->second;
    at->second.emplace();
    for (const Finding& f : judge_(other, *timeline).findings) at->second->emplace(f.finding, window_of(f, *timeline));
    return at->second;
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
    const std::vector<Point> all = points();
    const auto here = point_named(scenario_.engine.as_of.base, "");
    const auto shows = [&](std::size_t at) { return shows_in(all[at].name, f, repair); };
    const auto named = [&](std::size_t at) { return all[at].name + (at == 0 ? " or before" : ""); };
    std::size_t last = 0;
    while (last + 1 < all.size() && !all[last].at.contains_all_of(*here)) ++last;
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
  std::map<std::pair<std::string, std::map<std::string, std::string>>, Shown> runs_;
};

}  // namespace

void find_known_defects(const Scenario& scenario, const Timeline& timeline, std::vector<Finding>& findings, const Judge& judge) {
  if (findings.empty() || scenario.engine.framework != "deepspeed") return;  // the catalogue's repairs are switches of one framework
  const bool too_large = scenario.numel() * scenario.world_size * timeline.backwards.size() > limits::compared_elements_max;
  Defects defects(scenario, timeline, judge);
  for (Finding& f : findings)
    if (f.blame && f.blame->whose == ref::Whose::framework) {
      f.too_large = too_large;
      if (!too_large) f.known = defects.of(f);
    }
}

}  // namespace gradledger::search
