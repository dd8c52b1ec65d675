#include <algorithm>
#include <cctype>
#include <map>
#include <vector>

#include "ref/describe.h"
#include "report/terminal_replay.h"

namespace gradledger::report {
namespace {

constexpr std::size_t parts_from = 16;  // buffers or collectives of a line that are told together
constexpr std::size_t lines_max = 24;   // groups of ranks of an event
constexpr std::size_t again_from_times = 4;
constexpr std::size_t parts_apart_max = 10'000;  // of ranks that are alike in an event, each on a line of its own

struct Part {
  std::string plain, shown;
  bool operator==(const Part&) const = default;
};

// Ranks that did and held the same.
struct Line {
  std::string what;
  std::vector<Part> parts;
  bool wrong = false;
  std::vector<std::uint32_t> ranks;
};

std::string fact_text(StepFact fact, double value) {
  if (fact == StepFact::skipped) return value != 0 ? "overflow, skipped" : "no overflow";
  if (fact == StepFact::updated) return value != 0 ? "updated" : "no update";
  return fmt::format("{} {:.6g}", name_of(fact), value);
}

// Norms are of a rank's own data: with them few ranks and few windows would be alike.
bool of_a_rank(StepFact fact) { return fact == StepFact::gradient_norm || fact == StepFact::clipping_norm || fact == StepFact::loop_norm; }

std::string without_numbers(const std::string& text) {
  std::string out;
  for (const char c : text)
    if (!std::isdigit(static_cast<unsigned char>(c))) out += c;
  return out;
}

// A model has hundreds of parameters: neighbours of one role, right or wrong alike, are told by the first and the last.
void add_buffers(const std::vector<EventLine::Buffer>& all, const Style& style, std::vector<Part>& parts) {
  const Paint paint(style.colour);
  std::vector<const EventLine::Buffer*> shown;
  for (const EventLine::Buffer& buffer : all)
    if (buffer.role != Role::scratch || style.detail == Detail::all) shown.push_back(&buffer);
  for (std::size_t begin = 0, end = 0; begin < shown.size(); begin = end) {
    const EventLine::Buffer& first = *shown[begin];
    for (end = begin + 1; end < shown.size() && shown[end]->role == first.role && shown[end]->wrong == first.wrong && shown[end]->at_end == first.at_end;) ++end;
    const bool together = style.detail != Detail::all && end - begin > parts_from;
    if (!together) end = begin + 1;
    const std::string norm = style.detail == Detail::all && first.norm ? fmt::format(", {:.6g}", *first.norm) : "";
    const std::string named = together ? fmt::format("{} buffers from {} to {}", end - begin, first.name, shown[end - 1]->name) : first.name;
    const std::string text = fmt::format("{}{} ({}{})", first.wrong ? "*" : "", named, name_of(first.role), norm);
    parts.push_back({text, first.wrong ? paint.wrong(text) : text});
  }
}

void add_collectives(const std::vector<std::string>& all, const Style& style, std::vector<Part>& parts) {
  const Paint paint(style.colour);
  const auto add = [&](const std::string& text) { parts.push_back({"-> " + text, paint.faint("-> " + text)}); };
  if (all.size() <= parts_from || style.detail == Detail::all) {
    for (const std::string& collective : all) add(collective);
    return;
  }
  struct Alike {
    const std::string* first;
    std::size_t count = 0;
    bool same = true;
  };
  std::map<std::string, std::size_t> place;  // by the text without sizes
  std::vector<Alike> kinds;
  for (const std::string& collective : all) {
    const auto [at, fresh] = place.try_emplace(without_numbers(collective), kinds.size());
    if (fresh) kinds.push_back({&collective});
    Alike& kind = kinds[at->second];
    ++kind.count;
    kind.same = kind.same && collective == *kind.first;
  }
  for (const Alike& kind : kinds) {
    if (kind.count == 1) add(*kind.first);
    else add(kind.same ? fmt::format("{}, {} times", *kind.first, kind.count) : fmt::format("{} and {} more of other sizes", *kind.first, kind.count - 1));
  }
}

std::vector<Part> parts_of(const EventLine::Record& record, const Style& style) {
  std::vector<Part> parts;
  add_buffers(record.buffers, style, parts);
  add_collectives(record.collectives, style, parts);
  for (const auto& [fact, value] : record.facts)
    if (style.detail == Detail::all || !of_a_rank(fact)) parts.push_back({fact_text(fact, value), fact_text(fact, value)});
  if (parts.empty()) parts.push_back({"-", "-"});
  return parts;
}

// What a record says, which events may share: looked up by its place in memory, and never walked through.
class PartsOfRecords {
 public:
  struct Said {
    std::vector<Part> parts;
    std::size_t number = 0;  // the same where records say the same
  };

  explicit PartsOfRecords(const Style& style) : style_(style) {}
  const Said& of(const EventLine::Record& record) {
    auto [at, fresh] = known_.try_emplace(&record);
    if (!fresh) return at->second;
    at->second.parts = parts_of(record, style_);
    std::string all;
    for (const Part& part : at->second.parts) all += part.plain + '\n';
    at->second.number = numbers_.try_emplace(std::move(all), numbers_.size()).first->second;
    return at->second;
  }

 private:
  const Style& style_;
  std::map<const EventLine::Record*, Said> known_;
  std::map<std::string, std::size_t> numbers_;
};

bool any_wrong(const EventLine::Record& record) {
  return std::any_of(record.buffers.begin(), record.buffers.end(), [](const EventLine::Buffer& b) { return b.wrong; });
}

std::vector<Line> merged(const std::vector<const EventLine*>& lines, const Style& style, PartsOfRecords& parts) {
  std::vector<Line> out;
  std::map<std::pair<std::string, std::size_t>, std::size_t> places;  // by what it is and what it says
  for (const EventLine* line : lines) {
    const auto& [says, number] = parts.of(*line->record);
    if (style.detail == Detail::all) {
      if (line->ranks.size() * says.size() > parts_apart_max) out.push_back({line->what, says, any_wrong(*line->record), line->ranks});
      else
        for (const std::uint32_t rank : line->ranks) out.push_back({line->what, says, any_wrong(*line->record), {rank}});
      continue;
    }
    const auto [at, fresh] = places.try_emplace({line->what, number}, out.size());
    if (fresh) out.push_back({line->what, says, any_wrong(*line->record), {}});
    Line& all = out[at->second];
    all.ranks.insert(all.ranks.end(), line->ranks.begin(), line->ranks.end());
  }
  for (Line& line : out) std::sort(line.ranks.begin(), line.ranks.end());
  std::stable_sort(out.begin(), out.end(), [](const Line& a, const Line& b) { return a.ranks.front() < b.ranks.front(); });
  return out;
}

// As many as an event has room for, wrong ones before others. Returns how many are left out: right ones, wrong ones.
std::pair<std::size_t, std::size_t> cut(std::vector<Line>& lines, const Style& style) {
  if (lines.size() <= lines_max || style.detail == Detail::all) return {0, 0};
  std::size_t wrong = 0, right = 0, kept_wrong = 0;
  for (const Line& line : lines) wrong += line.wrong;
  const std::size_t room_for_wrong = std::min(wrong, lines_max - 1), room_for_right = lines_max - room_for_wrong;
  const std::size_t all = lines.size();
  std::erase_if(lines, [&](const Line& line) { return line.wrong ? ++kept_wrong > room_for_wrong : ++right > room_for_right; });
  const std::size_t left_wrong = wrong - room_for_wrong;
  return {all - lines.size() - left_wrong, left_wrong};
}

// Behind the event's number.
std::string text_of_event(const std::vector<const EventLine*>& of_event, const Style& style, PartsOfRecords& parts) {
  std::string out, what;
  std::vector<Line> lines = merged(of_event, style, parts);
  const auto [right, wrong] = cut(lines, style);
  for (const Line& line : lines) {
    if (out.empty() || line.what != what) out += fmt::format("{}{}\n", out.empty() ? "" : "       ", line.what);
    what = line.what;
    const std::string ranks = fmt::format("       {}  ", ref::numbered("rank", line.ranks));
    Flow flow(style.width, columns_of(ranks), 9);
    for (const Part& part : line.parts) flow.add(part.plain, part.shown);
    out += ranks + flow.text() + "\n";
  }
  if (wrong > 0) out += wrapped(fmt::format("       and {} more groups of ranks whose books do not balance, -v has them", wrong), style.width, 9) + "\n";
  if (right > 0) out += wrapped(fmt::format("       and {} more groups of ranks, -v has them", right), style.width, 9) + "\n";
  return out;
}

struct Block {
  std::uint32_t event = 0;
  std::string text;   // without its number
  std::string alike;  // likewise, without any other number of what the event is
};

// How often the blocks from `begin` come again at once, and how many they are: windows are mostly alike. The shortest such run.
struct Again {
  std::size_t blocks = 0, times = 0;
  bool numbered = false;  // but for the numbers of micro-batches and calls
};

template <class Same>
std::size_t times_again(const std::vector<Block>& all, std::size_t begin, std::size_t n, Same&& same) {
  std::size_t times = 0;
  const auto again = [&](std::size_t at) {
    for (std::size_t i = 0; i < n; ++i)
      if (!same(all[begin + i], all[at + i])) return false;
    return true;
  };
  while (begin + (times + 2) * n <= all.size() && again(begin + (times + 1) * n)) ++times;
  return times;
}

Again again_from(const std::vector<Block>& all, std::size_t begin) {
  constexpr std::size_t blocks_max = 64;
  for (std::size_t n = 2; n <= blocks_max && begin + 2 * n <= all.size(); ++n)
    if (const std::size_t times = times_again(all, begin, n, [](const Block& a, const Block& b) { return a.text == b.text; }); times > 0) return {n, times};
  // Micro-batches of a long window.
  for (std::size_t n = 1; n <= 4 && begin + 2 * n <= all.size(); ++n)
    if (const std::size_t times = times_again(all, begin, n, [](const Block& a, const Block& b) { return a.alike == b.alike; }); times >= again_from_times) return {n, times, true};
  return {};
}

}  // namespace

std::string event_lines(const Report& report, const Style& style) {
  std::vector<Block> blocks;
  PartsOfRecords parts(style);
  for (std::size_t begin = 0; begin < report.events.size();) {
    std::vector<const EventLine*> lines;
    std::size_t end = begin;
    while (end < report.events.size() && report.events[end].event == report.events[begin].event) lines.push_back(&report.events[end++]);
    const std::string text = text_of_event(lines, style, parts);
    const std::size_t what = std::min(text.find('\n'), text.size());
    blocks.push_back({report.events[begin].event, text, without_numbers(text.substr(0, what)) + text.substr(what)});
    begin = end;
  }
  std::string out = "\n" + wrapped("events: the gradients that ranks held (* its books do not balance), the collectives that they issued", style.width, 2) + "\n";
  for (std::size_t begin = 0; begin < blocks.size();) {
    const Again again = style.detail == Detail::all ? Again{} : again_from(blocks, begin);
    const std::size_t shown = std::max<std::size_t>(again.blocks, 1);
    for (std::size_t i = begin; i < begin + shown; ++i) out += fmt::format("{:5}  {}", blocks[i].event, blocks[i].text);
    if (again.times > 0) {
      const std::size_t end = begin + shown * (again.times + 1);
      out += wrapped(fmt::format("       events {} to {}: the same again{}, {} time{}", blocks[begin + shown].event, blocks[end - 1].event,
                                 again.numbered ? ", but for the number of the micro-batch or call" : "", again.times, again.times == 1 ? "" : "s"),
                     style.width, 9) +
             "\n";
    }
    begin += shown * (again.times + 1);
  }
  return out;
}

}  // namespace gradledger::report
