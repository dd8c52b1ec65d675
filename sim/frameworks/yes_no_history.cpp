#include "sim/frameworks/yes_no_history.h"

#include <algorithm>
#include <map>

#include "sim/base/contract.h"

namespace gradledger {
namespace {

void append(std::string& to, std::string_view separator, const std::string& text) { to += (to.empty() ? "" : std::string(separator)) + text; }

const char* named(bool value) { return value ? "yes" : "no"; }

std::string named_at(const DatedSwitch& of, std::string_view release) { return named(value_at(of, *release_number(release))); }

}  // namespace

bool value_at(const DatedSwitch& of, const ReleaseNumber& release) {
  const bool before = release < *release_number(of.since);
  if (of.until.empty()) return before ? !of.at_head : of.at_head;
  return before || release >= *release_number(of.until) ? of.at_head : !of.at_head;
}

std::optional<ReleaseNumber> YesNoHistory::number_of(std::string_view text) const {
  if (!facts_.prefix.empty() && text.starts_with(facts_.prefix)) text.remove_prefix(facts_.prefix.size());
  return release_number(text);
}

std::vector<YesNoHistory::Move> YesNoHistory::moves_of(std::string_view release) const {
  std::vector<Move> out;
  for (const DatedSwitch& of : facts_.switches) {
    if (of.since.empty()) continue;
    if (of.since == release) out.push_back({&of, of.change, named_at(of, release)});
    if (of.until == release) out.push_back({&of, of.ended_by, named_at(of, release)});
  }
  return out;
}

std::vector<std::string> YesNoHistory::points() const {
  const std::string_view oldest = facts_.compared.front();
  std::map<ReleaseNumber, std::string> by_release{{*release_number(oldest), std::string(oldest)}};
  for (const DatedSwitch& of : facts_.switches)
    for (const std::string_view release : {of.since, of.until})
      if (!release.empty()) by_release.emplace(*release_number(release), release);
  std::vector<std::string> out;
  for (const auto& [release, name] : by_release) out.push_back(name);
  return out;
}

std::optional<bool> YesNoHistory::contains_all_of(std::string_view as_of, std::string_view other) const {
  const auto known = [&](std::string_view text) { return text == "head" ? std::optional(ReleaseNumber{999, 0, 0}) : number_of(text); };
  const auto release = known(as_of), earlier = known(other);
  if (!release || !earlier || std::min(*release, *earlier) < *release_number(facts_.compared.front())) return std::nullopt;
  return *release >= *earlier;
}

std::optional<std::string> YesNoHistory::switch_value(const AsOf& as_of, std::string_view name) const {
  const auto values = facts_.values(as_of);
  for (std::size_t i = 0; values && i < facts_.switches.size(); ++i)
    if (facts_.switches[i].name == name) return named((*values)[i]);
  return std::nullopt;
}

std::optional<std::string> YesNoHistory::behaviour_of(const AsOf& as_of) const {
  const auto values = facts_.values(as_of);
  if (!values) return std::nullopt;
  std::string out;
  for (std::size_t i = 0; i < facts_.switches.size(); ++i) append(out, " ", std::string(facts_.switches[i].name) + "=" + named((*values)[i]));
  return out;
}

std::optional<std::vector<std::uint8_t>> YesNoHistory::values_of(const AsOf& as_of) const {
  const auto values = facts_.values(as_of);
  return values ? std::optional(std::vector<std::uint8_t>(values->begin(), values->end())) : std::nullopt;
}

std::vector<History::SwitchRow> YesNoHistory::switch_rows(std::string_view as_of) const {
  const auto now = facts_.values(AsOf{std::string(as_of), {}});
  expects(now.has_value(), "the switches of a release that is not known were asked for");
  std::vector<SwitchRow> out;
  for (std::size_t i = 0; i < facts_.switches.size(); ++i) {
    const DatedSwitch& of = facts_.switches[i];
    std::string values = (of.since.empty() ? named(of.at_head) : named_at(of, facts_.compared.front())) + std::string(" (older)");
    if (of.since.empty()) values += std::string(", ") + named(!of.at_head) + " (no release)";
    else values += ", " + named_at(of, of.since) + " (" + std::string(of.since) + ")";
    if (!of.until.empty()) values += ", " + named_at(of, of.until) + " (" + std::string(of.until) + ")";
    out.push_back({std::string(of.name), values, named((*now)[i]), std::string(of.says)});
  }
  return out;
}

std::vector<History::ReleaseRow> YesNoHistory::release_rows() const {
  const std::vector<std::string> starts = points();
  std::vector<ReleaseRow> out;
  for (std::size_t i = 0; i < starts.size(); ++i) {
    const auto next = i + 1 < starts.size() ? std::find(facts_.compared.begin(), facts_.compared.end(), starts[i + 1]) : facts_.compared.end();
    const std::string last(*(next - 1));
    std::string adds, moves;
    for (const Move& move : moves_of(starts[i])) {
      if (adds.find(move.change) == adds.npos) append(adds, ", ", std::string(move.change));
      append(moves, "; ", std::string(move.of->name) + " " + move.value);
    }
    out.push_back({starts[i] + (last == starts[i] ? "" : " to " + last), adds.empty() ? "nothing" : adds, moves.empty() ? "nothing" : moves});
  }
  return out;
}

std::vector<History::ChangeRow> YesNoHistory::change_rows() const {
  std::vector<ChangeRow> out;
  for (const std::string& release : points())
    for (const Move& move : moves_of(release)) {
      const auto known = std::find_if(out.begin(), out.end(), [&](const ChangeRow& row) { return row.change == move.change; });
      std::string what = std::string(move.of->name) + " " + move.value;
      if (known != out.end()) append(known->what, "; ", what);
      else out.push_back({std::string(move.change), release, std::move(what)});
    }
  return out;
}

}  // namespace gradledger
