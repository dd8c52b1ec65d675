#include "sim/frameworks/megatron/history.h"

#include <algorithm>
#include <array>
#include <string>

#include "sim/frameworks/megatron/behaviour.h"

namespace gradledger::megatron {
namespace {

constexpr std::array<std::string_view, 22> compared{"0.8.0",  "0.9.0",  "0.10.0", "0.11.0", "0.12.0", "0.12.1", "0.12.2", "0.12.3", "0.13.0", "0.13.1", "0.14.0",
                                                    "0.15.0", "0.15.1", "0.15.2", "0.15.3", "0.16.0", "0.16.1", "0.17.0", "0.17.1", "0.18.0", "0.18.2", "0.19.0"};

// A row an entry.
// clang-format off
constexpr Repair repaired[] = {
    {"zoo-57", "keeps_bucket_start", "yes", "no"},
    {"zoo-69", "divides_by_context", "no", "yes"},
};
// clang-format on

void append(std::string& to, std::string_view separator, const std::string& text) { to += (to.empty() ? "" : std::string(separator)) + text; }

const char* named(bool value) { return value ? "yes" : "no"; }

std::string value_of(const Behaviour& behaviour, const SwitchInfo& info) { return named(behaviour.*info.member); }

// A switch that a release has otherwise than the one before it.
struct Move {
  const SwitchInfo* info;
  std::string_view change;
  std::string value;
};

std::vector<Move> moves_of(std::string_view release) {
  std::vector<Move> out;
  for (const SwitchInfo& info : switches()) {
    if (info.since.empty()) continue;
    if (info.since == release) out.push_back({&info, info.change, named(value_at(info, release))});
    if (info.until == release) out.push_back({&info, info.ended_by, named(value_at(info, release))});
  }
  return out;
}

class MegatronHistory final : public History {
 public:
  std::vector<std::string> points() const override { return releases_that_differ(); }

  std::optional<bool> contains_all_of(std::string_view as_of, std::string_view other) const override { return not_before(as_of, other); }

  std::optional<std::string> switch_value(const AsOf& as_of, std::string_view name) const override {
    const auto behaviour = megatron::behaviour_of(as_of);
    for (const SwitchInfo& info : switches())
      if (behaviour && info.name == name) return value_of(*behaviour, info);
    return std::nullopt;
  }

  std::optional<std::string> behaviour_of(const AsOf& as_of) const override {
    const auto behaviour = megatron::behaviour_of(as_of);
    if (!behaviour) return std::nullopt;
    std::string out;
    for (const SwitchInfo& info : switches()) append(out, " ", std::string(info.name) + "=" + value_of(*behaviour, info));
    return out;
  }

  std::span<const Repair> repairs() const override { return repaired; }

  std::vector<SwitchRow> switch_rows(std::string_view as_of) const override {
    const auto behaviour = megatron::behaviour_of(AsOf{std::string(as_of), {}});
    expects(behaviour.ok(), "the switches of a release that is not known were asked for");
    std::vector<SwitchRow> out;
    for (const SwitchInfo& info : switches()) {
      std::string values = std::string(info.since.empty() ? "no" : named(value_at(info, oldest_release))) + " (older)";
      if (info.since.empty()) values += ", yes (no release)";
      else values += std::string(", ") + named(value_at(info, info.since)) + " (" + std::string(info.since) + ")";
      if (!info.until.empty()) values += std::string(", ") + named(value_at(info, info.until)) + " (" + std::string(info.until) + ")";
      out.push_back({std::string(info.name), values, value_of(*behaviour, info), std::string(info.says)});
    }
    return out;
  }

  std::vector<ReleaseRow> release_rows() const override {
    const std::vector<std::string> points = releases_that_differ();
    std::vector<ReleaseRow> out;
    for (std::size_t i = 0; i < points.size(); ++i) {
      const auto next = i + 1 < points.size() ? std::find(compared.begin(), compared.end(), points[i + 1]) : compared.end();
      const std::string last(*(next - 1));
      std::string adds, moves;
      for (const Move& move : moves_of(points[i])) {
        if (adds.find(move.change) == adds.npos) append(adds, ", ", std::string(move.change));
        append(moves, "; ", std::string(move.info->name) + " " + move.value);
      }
      out.push_back({points[i] + (last == points[i] ? "" : " to " + last), adds.empty() ? "nothing" : adds, moves.empty() ? "nothing" : moves});
    }
    return out;
  }

  std::vector<ChangeRow> change_rows() const override {
    std::vector<ChangeRow> out;
    for (const std::string& release : releases_that_differ())
      for (const Move& move : moves_of(release)) {
        const auto known = std::find_if(out.begin(), out.end(), [&](const ChangeRow& row) { return row.change == move.change; });
        std::string what = std::string(move.info->name) + " " + move.value;
        if (known != out.end()) append(known->what, "; ", what);
        else out.push_back({std::string(move.change), release, std::move(what)});
      }
    return out;
  }
};

}  // namespace

std::span<const std::string_view> compared_releases() { return compared; }

const History& history() {
  static const MegatronHistory it;
  return it;
}

}  // namespace gradledger::megatron
