#include "sim/frameworks/deepspeed/history.h"

#include <array>
#include <charconv>
#include <vector>

#include "sim/scenario/spelling.h"

namespace gradledger {
namespace {

constexpr std::array<ChangeInfo, change_count> all_changes{{
#define CHANGE(number, moved) {Change::pr##number, "#" #number, moved},
#define PACKAGE(id, release, moved) {Change::id, release, moved},
#include "sim/frameworks/deepspeed/history.def"
}};

// A change and all before it, and what was picked from behind it.
template <Change newest, Change... others>
ReleaseInfo releases_up_to(std::string_view first, std::string_view last) {
  static constexpr std::array<Change, sizeof...(others)> picked{others...};
  return {first, last, newest, picked};
}

std::span<const ReleaseInfo> all_releases() {
  using enum Change;
  static const std::vector<ReleaseInfo> table{
#define RELEASES(first, last, ...) releases_up_to<__VA_ARGS__>(first, last),
#include "sim/frameworks/deepspeed/history.def"
  };
  return table;
}

// In 0.16.0, and not in 0.15.4.
constexpr Change first_of_known_releases = Change::pr6675;

// A fourth number is that of a patch release: "0.18.9.1", "0.16.9.post1".
using Version = std::array<int, 4>;

std::optional<Version> version_of(std::string_view text) {
  Version parts{};
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (i == 3 && text.starts_with("post")) text.remove_prefix(4);
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), parts[i]);
    if (error != std::errc{} || parts[i] < 0) return std::nullopt;
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    if (text.empty()) return i < 2 ? std::nullopt : std::optional(parts);
    if (!text.starts_with('.')) return std::nullopt;
    text.remove_prefix(1);
  }
  return std::nullopt;
}

// The last line of releases that begins no later: that of a patch release, and of what is newer than all. None for what is older.
const ReleaseInfo* line_of(std::string_view as_of) {
  const auto version = version_of(as_of);
  const ReleaseInfo* line = nullptr;
  for (const ReleaseInfo& release : all_releases())
    if (version && *version_of(release.first) <= *version) line = &release;
  return line;
}

std::string what_is_known() {
  return "a release from " + std::string(all_releases().front().first) + " to " + std::string(all_releases().back().last) +
         ", \"head\", or a change, as \"DeepSpeed#7981\" (right after it) or \"before DeepSpeed#7981\", with \"+\" or \"-\" and a change behind it for one beside it or without "
         "it; "
         "gradledger list changes shows them";
}

PointInHistory contains_first(std::size_t count) {
  PointInHistory point;
  for (std::size_t i = 0; i < count; ++i) point = point.with(all_changes[i].change);
  return point;
}

PointInHistory after(Change change) { return contains_first(static_cast<std::size_t>(change) + 1); }

// Also with its project: "DeepSpeed#7981".
std::optional<Change> change_named(std::string_view name) {
  constexpr std::string_view project = "DeepSpeed";
  if (name.starts_with("DeepSpeed#")) name.remove_prefix(project.size());
  for (const ChangeInfo& change : all_changes)
    if (change.name == name) return change.change;
  return std::nullopt;
}

// Of a text without changes behind it.
std::optional<PointInHistory> known_point(std::string_view as_of) {
  if (as_of == "head") return head();
  const bool before = as_of.starts_with("before ");
  if (const auto change = change_named(before ? as_of.substr(7) : as_of)) return before ? after(*change).without(*change) : after(*change);
  const auto version = version_of(as_of);
  if (!version || (*version)[3] != 0) return std::nullopt;
  const ReleaseInfo* line = line_of(as_of);
  if (!line || *version > *version_of(line->last)) return std::nullopt;
  return point_of(*line);
}

// "0.18.9" of "0.18.9+#7981-#7965".
std::string_view base_of(std::string_view as_of) { return as_of.substr(0, as_of.find_first_of("+-")); }

// The changes that are said behind a base, one after another.
Result<PointInHistory> branch(PointInHistory point, std::string_view as_of, std::string_view where) {
  for (std::string_view rest = as_of.substr(base_of(as_of).size()); !rest.empty();) {
    const bool adds = rest.front() == '+';
    const std::string_view name = base_of(rest.substr(1));
    const auto change = change_named(name);
    if (!change)
      return InputError{std::string(where),
                        "unknown change \"" + std::string(name) + "\" in \"" + std::string(as_of) + "\"; expected after + or - one that gradledger list changes shows"};
    if (point.contains(*change) == adds)
      return InputError{std::string(where), "\"" + std::string(as_of.substr(0, as_of.size() - rest.size())) + "\" " + (adds ? "contains " : "does not contain ") +
                                                std::string(name) + (adds ? " already" : "") + "; expected a change that it " + (adds ? "lacks" : "contains")};
    point = adds ? point.with(*change) : point.without(*change);
    rest.remove_prefix(1 + name.size());
  }
  return point;
}

// The spelling that is known of a release or change that was written in another one: "v0.18.9", "7981", "after #7981".
std::string hint(std::string_view as_of) {
  const std::size_t first = as_of.find_first_of("0123456789");
  if (first == std::string_view::npos) return suggestion(as_of, {"head"});
  const std::string_view rest = as_of.substr(first);
  const std::string number(rest.substr(0, rest.find_first_not_of("0123456789.")));
  const bool before = as_of.find("before") < first || as_of.find("Before") < first;
  for (const std::string& spelling : {before ? "before #" + number : "#" + number, number})
    if (spelling != as_of && known_point(spelling)) return "; did you mean \"" + spelling + "\"?";
  return "";
}

}  // namespace

std::span<const ChangeInfo> changes() { return all_changes; }
std::span<const ReleaseInfo> releases() { return all_releases(); }

std::string first_release(Change change) {
  if (change < first_of_known_releases) return "before " + std::string(all_releases().front().first);
  for (const ReleaseInfo& release : all_releases())
    if (point_of(release).contains(change)) return std::string(release.first);
  return "none";
}

PointInHistory PointInHistory::with(Change change) const {
  PointInHistory out = *this;
  out.changes_.set(static_cast<std::size_t>(change));
  return out;
}

PointInHistory PointInHistory::without(Change change) const {
  PointInHistory out = *this;
  out.changes_.reset(static_cast<std::size_t>(change));
  return out;
}

PointInHistory head() {
  static const PointInHistory all = contains_first(change_count);
  return all;
}

PointInHistory point_of(const ReleaseInfo& line) {
  PointInHistory point = after(line.newest);
  for (const Change change : line.picked) point = point.with(change);
  return point;
}

Result<PointInHistory> point_named(std::string_view as_of, std::string_view where) {
  const std::string_view base = base_of(as_of);
  if (const auto point = known_point(base)) return branch(*point, as_of, where);
  if (const ReleaseInfo* line = line_of(base)) return branch(point_of(*line), as_of, where);
  return InputError{std::string(where), "unknown release or change \"" + std::string(base.empty() ? as_of : base) + "\"; expected " + what_is_known() + hint(base)};
}

std::optional<std::string> point_note(std::string_view as_of) {
  const std::string_view base = base_of(as_of);
  const ReleaseInfo* line = known_point(base) ? nullptr : line_of(base);
  if (!line) return std::nullopt;
  Version version = *version_of(base);
  version[3] = 0;
  if (version > *version_of(all_releases().back().last))
    return std::string(base) + " is newer than every release that is known; taken as the newest of them, " + std::string(line->last);
  const std::string taken = line->first == line->last ? "" : "one of " + std::string(line->first) + " to ";
  const std::string note = std::string(base) + " is no release that is known; taken as " + taken + std::string(line->last);
  return base == as_of ? note + ". Say a change that it took over alone as " + std::string(base) + "+#NUMBER" : note;
}

}  // namespace gradledger
