#include <algorithm>
#include <vector>

#include "ref/describe.h"
#include "report/terminal_replay.h"

namespace gradledger::report {
namespace {

struct Part {
  std::string plain, shown;
  bool operator==(const Part&) const = default;
};

// Ranks that did and held the same.
struct Line {
  std::string what;
  std::vector<Part> parts;
  std::vector<std::uint32_t> ranks;
};

std::string fact_text(StepFact fact, double value) {
  if (fact == StepFact::skipped) return value != 0 ? "overflow, skipped" : "no overflow";
  if (fact == StepFact::updated) return value != 0 ? "updated" : "no update";
  return fmt::format("{} {:.6g}", name_of(fact), value);
}

// Norms are of a rank's own data: with them few ranks and few windows would be alike.
bool of_a_rank(StepFact fact) { return fact == StepFact::gradient_norm || fact == StepFact::clipping_norm || fact == StepFact::loop_norm; }

std::vector<Part> parts_of(const EventLine& line, const Style& style) {
  const Paint paint(style.colour);
  std::vector<Part> parts;
  for (const EventLine::Buffer& buffer : line.buffers) {
    if (buffer.role == Role::scratch && style.detail != Detail::all) continue;
    const std::string norm = style.detail == Detail::all && buffer.norm ? fmt::format(", {:.6g}", *buffer.norm) : "";
    const std::string text = fmt::format("{}{} ({}{})", buffer.wrong ? "*" : "", buffer.name, name_of(buffer.role), norm);
    parts.push_back({text, buffer.wrong ? paint.wrong(text) : text});
  }
  for (const std::string& collective : line.collectives) parts.push_back({"-> " + collective, paint.faint("-> " + collective)});
  for (const auto& [fact, value] : line.facts)
    if (style.detail == Detail::all || !of_a_rank(fact)) parts.push_back({fact_text(fact, value), fact_text(fact, value)});
  if (parts.empty()) parts.push_back({"-", "-"});
  return parts;
}

std::vector<Line> merged(const std::vector<const EventLine*>& lines, const Style& style) {
  std::vector<Line> out;
  for (const EventLine* line : lines) {
    Line one{line->what, parts_of(*line, style), {line->rank}};
    bool alike = false;
    for (Line& other : out) {
      if (style.detail == Detail::all || other.what != one.what || other.parts != one.parts) continue;
      other.ranks.push_back(line->rank);
      alike = true;
      break;
    }
    if (!alike) out.push_back(std::move(one));
  }
  return out;
}

// Behind the event's number.
std::string text_of_event(const std::vector<const EventLine*>& lines, const Style& style) {
  std::string out, what;
  for (const Line& line : merged(lines, style)) {
    if (out.empty() || line.what != what) out += fmt::format("{}{}\n", out.empty() ? "" : "       ", line.what);
    what = line.what;
    const std::string ranks = fmt::format("       {}  ", ref::numbered("rank", line.ranks));
    Flow flow(style.width, columns_of(ranks), 9);
    for (const Part& part : line.parts) flow.add(part.plain, part.shown);
    out += ranks + flow.text() + "\n";
  }
  return out;
}

struct Block {
  std::uint32_t event = 0;
  std::string text;  // without its number
};

// How often the blocks from `begin` come again at once, and how many they are: windows are mostly alike. The shortest such run.
struct Again {
  std::size_t blocks = 0, times = 0;
};

Again again_from(const std::vector<Block>& all, std::size_t begin) {
  constexpr std::size_t blocks_max = 64;
  for (std::size_t n = 2; n <= blocks_max && begin + 2 * n <= all.size(); ++n) {
    std::size_t times = 0;
    const auto same = [&](std::size_t at) {
      for (std::size_t i = 0; i < n; ++i)
        if (all[begin + i].text != all[at + i].text) return false;
      return true;
    };
    while (begin + (times + 2) * n <= all.size() && same(begin + (times + 1) * n)) ++times;
    if (times > 0) return {n, times};
  }
  return {};
}

}  // namespace

std::string event_lines(const Report& report, const Style& style) {
  std::vector<Block> blocks;
  for (std::size_t begin = 0; begin < report.events.size();) {
    std::vector<const EventLine*> lines;
    std::size_t end = begin;
    while (end < report.events.size() && report.events[end].event == report.events[begin].event) lines.push_back(&report.events[end++]);
    blocks.push_back({report.events[begin].event, text_of_event(lines, style)});
    begin = end;
  }
  std::string out = "\n" + wrapped("events: the gradients that ranks held (* its books do not balance), the collectives that they issued", style.width, 2) + "\n";
  for (std::size_t begin = 0; begin < blocks.size();) {
    const Again again = style.detail == Detail::all ? Again{} : again_from(blocks, begin);
    const std::size_t shown = std::max<std::size_t>(again.blocks, 1);
    for (std::size_t i = begin; i < begin + shown; ++i) out += fmt::format("{:5}  {}", blocks[i].event, blocks[i].text);
    if (again.times > 0) {
      const std::size_t end = begin + shown * (again.times + 1);
      out += wrapped(fmt::format("       events {} to {}: the same again, {} time{}", blocks[begin + shown].event, blocks[end - 1].event, again.times, again.times == 1 ? "" : "s"),
                     style.width, 9) +
             "\n";
    }
    begin += shown * (again.times + 1);
  }
  return out;
}

}  // namespace gradledger::report
