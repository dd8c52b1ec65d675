#include "audit/sweep.h"

#include <algorithm>

#include "sim/frameworks/history.h"

namespace gradledger::audit {
namespace {

// Of releases of a history, oldest first: the last one that the set-up's own contains.
std::size_t current_of(const History& history, const std::vector<std::string>& points, const std::string& as_of) {
  std::size_t out = 0;
  for (std::size_t i = 0; i < points.size(); ++i)
    if (history.contains_all_of(as_of, points[i]).value_or(false)) out = i;
  return out;
}

std::string first_of(const std::string& label) { return label.substr(0, label.find(' ')); }
std::string last_of(const std::string& label) { return label.substr(label.rfind(' ') == label.npos ? 0 : label.rfind(' ') + 1); }

std::string joined(const std::string& one, const std::string& other) {
  const std::string first = first_of(one), last = last_of(other);
  return first == last ? first : first + " to " + last;
}

// States of a framework, oldest first, with the releases that they stand for and the set-up's own among them.
struct Points {
  std::vector<std::string> names, labels;
  std::size_t current = 0;
};

// Of a history: its runs of releases, and the name of what lies behind them.
Points points_of(const History& history, const std::string& as_of) {
  Points out{history.points(), {}, 0};
  const auto rows = history.release_rows();
  for (std::size_t i = 0; i < out.names.size(); ++i) out.labels.push_back(i < rows.size() ? rows[i].releases : out.names[i]);
  out.current = current_of(history, out.names, as_of);
  return out;
}

Points points_of(const Setup& setup) {
  if (const History* history = setup.framework->history()) return points_of(*history, setup.as_of);
  Points out{setup.framework->user_config()->releases(), {}, 0};
  for (std::size_t i = 0; i < out.names.size(); ++i) {
    out.labels.push_back(i + 1 == out.names.size() ? out.names[i] : "from " + out.names[i]);
    if (setup.as_of == "head" || loops::at_least(setup.as_of, out.names[i])) out.current = i;
  }
  return out;
}

}  // namespace

std::vector<AtRelease> at_releases(const Setup& setup, Replayer& replayer) {
  std::vector<AtRelease> out;
  const Points points = points_of(setup);
  for (std::size_t i = 0; i < points.names.size(); ++i) {
    Variant variant = variant_of(setup);
    variant.as_of = points.names[i];
    out.push_back({points.labels[i], points.names[i], replayer.answer(variant), i == points.current});
  }
  return out;
}

std::vector<AtRelease> at_packages(const Setup& setup, const std::string& package, Replayer& replayer) {
  std::vector<AtRelease> out;
  const auto at = std::find_if(setup.loop->packages.begin(), setup.loop->packages.end(), [&](const loops::LoopPackage& p) { return p.name == package; });
  const std::string& mine = setup.setting.packages.at(package);
  for (std::size_t i = 0; i < at->changed.size(); ++i) {
    const std::string first(at->changed[i]);
    const bool last = i + 1 == at->changed.size();
    // A release that does not have the framework yet has no such loop.
    if (!loops::at_least(first, loops::first_release_with(setup.framework->id(), package))) continue;
    Variant variant = variant_of(setup);
    variant.packages[package] = first;
    const bool current = loops::at_least(mine, first) && (last || !loops::at_least(mine, at->changed[i + 1]));
    out.push_back({last ? joined(first, std::string(at->newest)) : "from " + first, first, replayer.answer(variant), current});
  }
  return out;
}

std::vector<report::AuditReleases> merged(const std::string& package, const std::vector<AtRelease>& at) {
  std::vector<report::AuditReleases> out;
  for (const AtRelease& r : at) {
    const std::string verdict = r.answer.text();
    if (!out.empty() && out.back().verdict == verdict) {
      if (!r.label.starts_with("from ")) out.back().releases = joined(out.back().releases.starts_with("from ") ? out.back().releases.substr(5) : out.back().releases, r.label);
      out.back().current |= r.current;
      continue;
    }
    out.push_back({package, r.label, verdict, r.answer.affected(), r.answer.judged(), r.current});
  }
  return out;
}

report::AuditMatrix releases_matrix(const std::string& package, const std::vector<AtRelease>& at) {
  report::AuditMatrix out{package, {"verdict"}, {}};
  for (const AtRelease& r : at) out.rows.push_back({r.label + (r.current ? " (yours)" : ""), {r.answer.text()}});
  return out;
}

report::AuditMatrix stages_matrix(const Setup& setup, Replayer& replayer, bool all_releases) {
  const std::vector<ConfigChange> stages = setup.framework->user_config()->stages(setup.config);
  report::AuditMatrix out{package_of(*setup.framework), {}, {}};
  for (const ConfigChange& stage : stages) out.columns.push_back(stage.id);
  const auto row = [&](const std::string& name, const std::string& as_of) {
    report::AuditMatrix::Row cells{name, {}};
    for (const ConfigChange& stage : stages) {
      Variant variant = variant_of(setup);
      variant.config = stage.config;
      variant.as_of = as_of;
      cells.cells.push_back(replayer.answer(variant).text());
    }
    out.rows.push_back(std::move(cells));
  };
  const Points points = points_of(setup);
  if (!all_releases || points.names.empty()) {
    row(setup.as_of, setup.as_of);
    return out;
  }
  for (std::size_t i = 0; i < points.names.size(); ++i) row(points.labels[i] + (i == points.current ? " (yours)" : ""), points.names[i]);
  return out;
}

}  // namespace gradledger::audit
