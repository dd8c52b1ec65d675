// Lanes and bytes, as the page draws them.
#include <algorithm>
#include <array>
#include <map>

#include <fmt/format.h>

#include "report/html/parts.h"
#include "report/runs.h"

namespace gradledger::report {
namespace {

// More than that, no browser draws in a moment.
constexpr std::size_t bars_max = 100'000;

// Strings by number, each once.
class Words {
 public:
  std::size_t number(const std::string& word) {
    const auto [found, fresh] = known_.try_emplace(word, list_.size());
    if (fresh) list_.push_back(word);
    return found->second;
  }
  ordered_json json() const { return list_; }

 private:
  std::map<std::string, std::size_t> known_;
  std::vector<std::string> list_;
};

// Operations of one stream and one event that follow each other without a gap; collectives and racing operations stand alone.
struct Bar {
  std::uint64_t begin = 0, end = 0;
  std::int64_t event = 0;  // -1: before the first
  std::vector<OpKind> kinds;
  std::optional<std::uint32_t> meeting;
  std::vector<std::size_t> races;
};

bool is_of(const RacingOperation& racing, const LaneOperation& operation) { return racing.number == operation.number; }

std::vector<std::size_t> races_of(const Lanes& lanes, std::uint32_t rank, const LaneOperation& operation) {
  std::vector<std::size_t> out;
  for (std::size_t i = 0; i < lanes.races.size(); ++i)
    if (lanes.races[i].rank == rank && (is_of(lanes.races[i].first, operation) || is_of(lanes.races[i].second, operation))) out.push_back(i);
  return out;
}

using BarsOfRank = std::array<std::vector<Bar>, stream_count>;

BarsOfRank bars_of(const Lanes& lanes, std::uint32_t rank) {
  BarsOfRank out;
  for (const LaneOperation& operation : lanes.ranks[rank]) {
    std::vector<Bar>& lane = out[static_cast<std::size_t>(operation.stream)];
    Bar bar{operation.begin, operation.end, operation.at_start ? -1 : std::int64_t{operation.event}, {operation.kind}, operation.meeting, races_of(lanes, rank, operation)};
    const bool alone = bar.meeting || !bar.races.empty();
    if (!alone && !lane.empty() && !lane.back().meeting && lane.back().races.empty() && lane.back().event == bar.event && lane.back().end == bar.begin) {
      lane.back().end = bar.end;
      lane.back().kinds.push_back(operation.kind);
    } else {
      lane.push_back(std::move(bar));
    }
  }
  return out;
}

// "deposit x 3, copy".
std::string kinds_text(const std::vector<OpKind>& kinds) {
  std::map<OpKind, std::size_t> count;
  for (const OpKind kind : kinds) ++count[kind];
  std::string out;
  for (const auto& [kind, times] : count) out += fmt::format("{}{}{}", out.empty() ? "" : ", ", name_of(kind), times > 1 ? fmt::format(" x {}", times) : "");
  return out;
}

ordered_json bar_json(const Bar& bar, Words& words) {
  ordered_json out{bar.begin, bar.end - bar.begin, bar.event, words.number(kinds_text(bar.kinds)), bar.meeting ? std::int64_t{*bar.meeting} : -1};
  if (!bar.races.empty()) out.push_back(bar.races);
  return out;
}

std::string race_text(const RaceRecord& race) {
  return fmt::format("rank {}: {} on stream {} and {} on stream {} touch {}[{}:{}], and nothing orders them", race.rank, race.first.operation, race.first.stream,
                     race.second.operation, race.second.stream, race.buffer, race.begin, race.end);
}

ordered_json ranks_json(const std::vector<BarsOfRank>& ranks, Words& words) {
  ordered_json out = ordered_json::array();
  for (const BarsOfRank& bars : ranks) {
    ordered_json rank = ordered_json::object();
    for (std::size_t s = 0; s < stream_count; ++s) {
      if (bars[s].empty()) continue;
      ordered_json& lane = rank[std::string(name_of(static_cast<Stream>(s)))] = ordered_json::array();
      for (const Bar& bar : bars[s]) lane.push_back(bar_json(bar, words));
    }
    out.push_back(std::move(rank));
  }
  return out;
}

std::string space_name(std::size_t space) { return std::string(name_of(static_cast<MemorySpace>(space))); }

ordered_json bytes_part(const MemoryBytes& bytes) {
  ordered_json out = ordered_json::object();
  for (std::size_t kind = 0; kind < memory_kinds; ++kind)
    if (bytes[kind] > 0) out[std::string(memory_kind_name(kind))] = bytes[kind];
  return out;
}

ordered_json phase_part(const PhaseAccount& phase, Phase which) {
  ordered_json out{{"phase", name_of(which)}};
  for (std::size_t s = 0; s < space_count; ++s)
    if (phase.space[s].peak[all_memory] > 0)
      out["spaces"].push_back({{"space", space_name(s)}, {"resident", bytes_part(phase.space[s].resident)}, {"peak", bytes_part(phase.space[s].peak)}});
  for (const auto& [key, account] : phase.collectives)
    out["sent"].push_back({{"what", fmt::format("{} ({}, {})", name_of(std::get<1>(key)), name_of(std::get<0>(key)), name_of(std::get<3>(key)))},
                           {"count", account.count},
                           {"bytes", account.bytes}});
  return out;
}

// Windows that are alike and follow each other stand once.
ordered_json windows_part(const RankAccount& rank) {
  ordered_json out = ordered_json::array();
  for (std::size_t first = 0, next = 0; first < rank.windows.size(); first = next) {
    while (next < rank.windows.size() && rank.windows[next] == rank.windows[first]) ++next;
    ordered_json window{{"first", first}, {"last", next - 1}, {"phases", ordered_json::array()}};
    for (const Phase which : phases_shown)
      if (rank.windows[first].of(which).happened) window["phases"].push_back(phase_part(rank.windows[first].of(which), which));
    out.push_back(std::move(window));
  }
  return out;
}

}  // namespace

ordered_json lanes_part(const Lanes& lanes) {
  ordered_json out;
  if (!lanes.left_out.empty()) return {{"left_out", lanes.left_out}};
  std::vector<BarsOfRank> ranks;
  std::size_t bars = 0;
  for (std::uint32_t r = 0; r < lanes.ranks.size(); ++r) {
    ranks.push_back(bars_of(lanes, r));
    for (const std::vector<Bar>& lane : ranks.back()) bars += lane.size();
  }
  if (bars > bars_max) return {{"left_out", fmt::format("{} groups of operations are more than the {} that a page draws; --chrome-trace writes all of them", bars, bars_max)}};
  Words words;
  out["end"] = lanes.end;
  out["events"] = ordered_json::array();
  for (const Lanes::Event& event : lanes.events) out["events"].push_back({event.what, event.step});
  out["ranks"] = ranks_json(ranks, words);
  out["words"] = words.json();
  out["meetings"] = ordered_json::array();
  for (const Meeting& meeting : lanes.meetings) out["meetings"].push_back({words.number(meeting.what), meeting.complete});
  out["words"] = words.json();
  out["races"] = ordered_json::array();
  for (const RaceRecord& race : lanes.races) out["races"].push_back(race_text(race));
  return out;
}

// Ranks that are alike stand once.
ordered_json accounting_part(const Accounting& accounting) {
  ordered_json out{{"ranks", ordered_json::array()}};
  const std::vector<RankAccount>& ranks = accounting.ranks;
  std::vector<bool> shown(ranks.size(), false);
  for (std::uint32_t r = 0; r < ranks.size(); ++r) {
    if (shown[r]) continue;
    std::vector<std::uint32_t> alike;
    for (std::uint32_t other = r; other < ranks.size(); ++other)
      if (!shown[other] && ranks[other] == ranks[r]) {
        shown[other] = true;
        alike.push_back(other);
      }
    ordered_json start = ordered_json::array();
    for (std::size_t s = 0; s < space_count; ++s)
      if (ranks[r].start[s][all_memory] > 0) start.push_back({{"space", space_name(s)}, {"resident", bytes_part(ranks[r].start[s])}});
    out["ranks"].push_back({{"ranks", alike}, {"start", start}, {"windows", windows_part(ranks[r])}});
  }
  if (accounting.stopped) out["stopped"] = *accounting.stopped;
  return out;
}

}  // namespace gradledger::report
