#include "sim/frameworks/torch/history/wrapper_history.h"

#include <algorithm>

#include "sim/frameworks/torch/history/releases.h"
#include "sim/frameworks/watched_switch.h"
#include "sim/scenario/json_reader.h"
#include "sim/scenario/script_pointer.h"
#include "sim/scenario/spelling.h"

namespace gradledger::torch {
namespace {

void append(std::string& to, std::string_view separator, const std::string& text) { to += (to.empty() ? "" : std::string(separator)) + text; }

template <class Rows>
std::vector<std::string> names_of(const Rows& rows) {
  std::vector<std::string> out;
  for (const auto& row : rows) out.emplace_back(row.name);
  return out;
}

std::string listed(const std::vector<std::string>& names) {
  std::string out;
  for (const std::string& name : names) append(out, ", ", name);
  return out;
}

// Precondition: a release of the table of a wrapper, or none.
std::uint32_t line_since(std::string_view since) { return since.empty() ? 0 : line_of_release(since, "").value(); }

}  // namespace

Result<std::vector<std::uint8_t>> WrapperHistory::resolve(const AsOf& as_of) const {
  const auto line = line_of_release(as_of.base, as_of.switches.empty() ? "/engine/as_of" : "/engine/as_of/base");
  if (!line) return line.error();
  std::vector<std::uint8_t> out(wrapper_.switches.size(), 0);
  for (std::size_t s = 0; s < out.size(); ++s)
    for (std::size_t v = 0; v < wrapper_.switches[s].values.size(); ++v)
      if (line_since(wrapper_.switches[s].values[v].since) <= *line) out[s] = static_cast<std::uint8_t>(v);
  for (const auto& [name, value] : as_of.switches) {
    const std::string where = "/engine/as_of/" + pointer_token(name);
    const auto found = std::find_if(wrapper_.switches.begin(), wrapper_.switches.end(), [&](const Switch& s) { return s.name == name; });
    if (wrapper_.switches.empty()) return InputError{where, "is a switch, which " + std::string(wrapper_.title) + " has none of; expected a release"};
    const std::vector<std::string> known = names_of(wrapper_.switches);
    if (found == wrapper_.switches.end()) return InputError{where, "unknown switch \"" + name + "\"; expected one of " + listed(known) + suggestion(name, known)};
    const std::vector<std::string> values = names_of(found->values);
    const auto at = std::find(values.begin(), values.end(), value);
    if (at == values.end()) return InputError{where, "unknown value \"" + value + "\"; expected one of " + listed(values) + suggestion(value, values)};
    out[static_cast<std::size_t>(found - wrapper_.switches.begin())] = static_cast<std::uint8_t>(at - values.begin());
  }
  return out;
}

std::optional<InputError> WrapperHistory::problem(const AsOf& as_of) const {
  const auto resolved = resolve(as_of);
  return resolved ? std::nullopt : std::optional(resolved.error());
}

std::optional<InputError> WrapperHistory::missing(const AsOf& as_of, std::string_view name, const std::string& where) const {
  for (const Addition& a : wrapper_.additions) {
    if (a.name != name) continue;
    SwitchRecorder::note(static_cast<SwitchPlace>(wrapper_.switches.size() + static_cast<std::size_t>(&a - wrapper_.additions.data())));
    if (!has(a, as_of))
      return InputError{where, "is not in PyTorch " + as_of.base + ": " + std::string(wrapper_.title) + " has it from " + std::string(a.since) +
                                   " on; expected a later release in /engine/as_of, or the script without it"};
  }
  return std::nullopt;
}

std::optional<InputError> WrapperHistory::missing_calls(const AsOf& as_of, const std::vector<ScriptItem>& items, const std::string& where) const {
  for (std::size_t i = 0; i < items.size(); ++i) {
    const std::string here = where + "/" + std::to_string(i);
    if (items[i].kind == ScriptKind::of_framework)
      if (auto problem = missing(as_of, items[i].event.name, here + "/event")) return problem;
    if (auto inside = missing_calls(as_of, items[i].items, pointer_of_items(items[i], here))) return inside;
  }
  return std::nullopt;
}

bool WrapperHistory::has(const Addition& addition, const AsOf& as_of) const { return line_of_release(as_of.base, "").value() >= line_since(addition.since); }

WrapperHistory::Step WrapperHistory::step_of(std::string_view release) const {
  Step out;
  for (const Addition& a : wrapper_.additions)
    if (a.since == release) append(out.adds, ", ", std::string(a.name));
  for (const Switch& s : wrapper_.switches)
    for (const SwitchValue& v : s.values)
      if (v.since == release) append(out.moves, "; ", std::string(s.name) + " " + std::string(v.name));
  return out;
}

std::vector<std::string> WrapperHistory::points() const {
  std::vector<std::string> out;
  for (const ReleaseLine& line : release_lines())
    if (out.empty() || !step_of(line.first).empty()) out.emplace_back(line.first);
  return out;
}

std::optional<bool> WrapperHistory::contains_all_of(std::string_view as_of, std::string_view other) const {
  const auto line = line_of_release(as_of, ""), contained = line_of_release(other, "");
  return line && contained ? std::optional(*line >= *contained) : std::nullopt;
}

std::optional<std::string> WrapperHistory::switch_value(const AsOf& as_of, std::string_view name) const {
  const auto resolved = resolve(as_of);
  if (!resolved) return std::nullopt;
  for (std::size_t s = 0; s < wrapper_.switches.size(); ++s)
    if (wrapper_.switches[s].name == name) return std::string(wrapper_.switches[s].values[(*resolved)[s]].name);
  return std::nullopt;
}

std::optional<std::string> WrapperHistory::behaviour_of(const AsOf& as_of) const {
  const auto resolved = resolve(as_of);
  if (!resolved) return std::nullopt;
  std::string out(wrapper_.framework);
  for (std::size_t s = 0; s < wrapper_.switches.size(); ++s)
    append(out, " ", std::string(wrapper_.switches[s].name) + "=" + std::string(wrapper_.switches[s].values[(*resolved)[s]].name));
  return out;
}

std::optional<std::vector<std::uint8_t>> WrapperHistory::values_of(const AsOf& as_of) const {
  const auto resolved = resolve(as_of);
  if (!resolved) return std::nullopt;
  std::vector<std::uint8_t> out = *resolved;
  for (const Addition& a : wrapper_.additions) out.push_back(has(a, as_of));
  return out;
}

std::vector<History::SwitchRow> WrapperHistory::switch_rows(std::string_view as_of) const {
  const auto resolved = resolve(AsOf{std::string(as_of), {}});
  expects(resolved.ok(), "the switches of a release that is not known were asked for");
  std::vector<SwitchRow> out;
  for (std::size_t i = 0; i < wrapper_.switches.size(); ++i) {
    const Switch& s = wrapper_.switches[i];
    std::string values;
    for (const SwitchValue& v : s.values) append(values, ", ", std::string(v.name) + " (" + std::string(v.since.empty() ? "older" : v.since) + ")");
    out.push_back({std::string(s.name), values, std::string(s.values[(*resolved)[i]].name), std::string(s.meaning)});
  }
  return out;
}

std::vector<History::ReleaseRow> WrapperHistory::release_rows() const {
  std::vector<ReleaseRow> out;
  std::string first;
  for (const ReleaseLine& line : release_lines()) {
    const Step step = step_of(line.first);
    if (out.empty() || !step.empty()) {
      first = std::string(line.first);
      out.push_back({first, step.adds.empty() ? "nothing" : step.adds, step.moves.empty() ? "nothing" : step.moves});
    }
    out.back().releases = first + (first == line.last ? "" : " to " + std::string(line.last));
  }
  return out;
}

std::vector<History::ChangeRow> WrapperHistory::change_rows() const {
  std::vector<ChangeRow> out;
  for (const ReleaseLine& line : release_lines()) {
    const Step step = step_of(line.first);
    std::string what = step.moves;
    if (!step.adds.empty()) append(what, "; ", step.adds + " can be said");
    if (!what.empty()) out.push_back({"PyTorch " + std::string(line.first), std::string(line.first), what});
  }
  return out;
}

}  // namespace gradledger::torch
