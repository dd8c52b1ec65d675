#include <algorithm>
#include <map>
#include <tuple>
#include <vector>

#include "ref/describe.h"
#include "report/terminal_replay.h"

namespace gradledger::report {
namespace {

using ref::AppliedRow;

constexpr std::size_t groups_max = 24;   // of contributions, in a table
constexpr std::size_t alike_from = 8;    // rows of a table, where those that differ in their elements alone are one
constexpr std::size_t ranges_max = 8;    // of elements, in a line as long as it comes
constexpr std::size_t before_cells = 2;  // columns: ranks and elements

struct Cell {
  std::string text;
  bool wrong = false;
  bool operator==(const Cell&) const = default;
};

// A head, and rows of which the first two cells say what the others are of.
struct Table {
  std::string title;
  std::vector<std::vector<Cell>> lines;
  std::size_t hidden = 0;  // groups of contributions that are not in it
};

// Neighbouring micro-batches of a rank whose cells are alike in every row of the step share a column; in a large world ranks that follow each other do too.
struct ColumnGroup {
  std::uint32_t step, rank, last_rank, first, last;
  std::size_t index;  // of its first column
};

using RowsCells = std::vector<std::tuple<double, double, bool, bool>>;  // by row: observed, due, misplaced, open

RowsCells cells_in(const std::vector<const AppliedRow*>& rows, std::size_t column) {
  RowsCells out;
  for (const AppliedRow* row : rows) out.emplace_back(row->row.observed[column], row->row.expected[column], row->row.misplaced_at(column), row->row.open_at(column));
  return out;
}

// One rank's columns.
struct OfRank {
  std::size_t begin = 0, end = 0;  // groups
  std::vector<std::tuple<std::uint32_t, std::uint32_t, RowsCells>> says;
};

std::vector<ColumnGroup> ranks_together(const std::vector<ColumnGroup>& groups, const std::vector<const AppliedRow*>& rows) {
  std::vector<ColumnGroup> out;
  OfRank before;
  std::size_t placed = 0;  // groups of the ranks before, at the end of `out`
  for (std::size_t begin = 0; begin < groups.size(); begin = before.end) {
    OfRank now{begin, begin, {}};
    for (; now.end < groups.size() && groups[now.end].rank == groups[begin].rank && groups[now.end].step == groups[begin].step; ++now.end)
      now.says.emplace_back(groups[now.end].first, groups[now.end].last, cells_in(rows, groups[now.end].index));
    const bool follows = placed > 0 && out.back().step == groups[begin].step && out.back().last_rank + 1 == groups[begin].rank && before.says == now.says;
    if (follows) {
      for (std::size_t i = out.size() - placed; i < out.size(); ++i) out[i].last_rank = groups[begin].rank;
    } else {
      out.insert(out.end(), groups.begin() + static_cast<std::ptrdiff_t>(now.begin), groups.begin() + static_cast<std::ptrdiff_t>(now.end));
      placed = now.end - now.begin;
    }
    before = std::move(now);
  }
  return out;
}

std::vector<ColumnGroup> groups_of(const std::vector<const AppliedRow*>& rows) {
  const std::vector<Contribution>& columns = rows.front()->columns;
  std::vector<std::size_t> order(columns.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return columns[a] < columns[b]; });
  std::vector<ColumnGroup> groups;
  for (std::size_t k : order) {
    const Contribution& c = columns[k];
    const bool dark = std::all_of(rows.begin(), rows.end(), [&](const AppliedRow* r) { return r->row.dark(k); });
    if (dark) continue;  // other windows that left nothing behind
    if (!groups.empty()) {
      ColumnGroup& last = groups.back();
      if (last.step == c.step && last.rank == c.rank && last.last + 1 == c.micro_batch && cells_in(rows, last.index) == cells_in(rows, k)) {
        last.last = c.micro_batch;
        continue;
      }
    }
    groups.push_back({c.step, c.rank, c.rank, c.micro_batch, c.micro_batch, k});
  }
  return groups.size() > groups_max ? ranks_together(groups, rows) : groups;
}

std::vector<Cell> head_of(const std::vector<ColumnGroup>& groups, std::uint32_t step) {
  std::vector<Cell> head{{"rank"}, {"elements"}};
  for (const ColumnGroup& g : groups) {
    const std::string micro_batches = g.first == g.last ? fmt::format("m{}", g.first) : fmt::format("m{}-{}", g.first, g.last);
    const std::string ranks = g.rank == g.last_rank ? fmt::format("r{}", g.rank) : fmt::format("r{}-{}", g.rank, g.last_rank);
    head.push_back({fmt::format("{}{} {}", g.step == step ? "" : fmt::format("s{} ", g.step), ranks, micro_batches)});
  }
  return head;
}

std::vector<Cell> cells_of(const AppliedRow& row, const std::vector<ColumnGroup>& groups) {
  std::vector<Cell> out;
  for (const ColumnGroup& g : groups) {
    const double observed = row.row.observed[g.index], expected = row.row.expected[g.index];
    const bool misplaced = row.row.misplaced_at(g.index), off = misplaced || observed != expected;
    const std::string told = off ? fmt::format("[{} for {}]", ref::observed_text(observed, misplaced), ref::weight_text(expected)) : ref::weight_text(observed);
    out.push_back({!off && row.row.open_at(g.index) ? told + "?" : told, off});
  }
  return out;
}

std::uint64_t elements_in(const AppliedRow& row) {
  std::uint64_t out = 0;
  for (const ref::ElementRange& e : row.row.elements) out += e.end - e.begin;
  return out;
}

// As many ranges of them as a third of a line holds, and how many more there are. Of a whole model the first alone.
std::string elements_that_fit(const Report& report, const std::vector<ref::ElementRange>& elements, const Style& style) {
  if (style.width == any_width) return ref::elements_text(report.parameters, elements, elements.size() > ranges_max ? 1 : ranges_max);
  const std::size_t room = std::max<std::size_t>(style.width / 3, 16);
  std::size_t shown = std::min(elements.size(), ranges_max);
  while (shown > 1 && columns_of(ref::elements_text(report.parameters, elements, shown)) > room) --shown;
  return ref::elements_text(report.parameters, elements, shown);
}

// Rows that hold the same weights.
struct Alike {
  std::vector<std::uint32_t> ranks;
  std::string elements;
  const std::vector<ref::ElementRange>* of = nullptr;  // that `elements` lists; nothing where it counts those of several rows
  std::uint64_t least = 0, most = 0;                   // elements
  std::vector<Cell> cells;
};

std::vector<Alike> alike_rows(const Report& report, const std::vector<const AppliedRow*>& rows, const std::vector<ColumnGroup>& groups) {
  std::vector<Alike> out;
  for (const AppliedRow* row : rows) {
    const Alike one{{row->rank}, ref::elements_text(report.parameters, row->row.elements), &row->row.elements, elements_in(*row), elements_in(*row), cells_of(*row, groups)};
    const auto found = std::find_if(out.begin(), out.end(), [&](const Alike& a) { return a.cells == one.cells && (rows.size() > alike_from || a.elements == one.elements); });
    if (found == out.end()) {
      out.push_back(one);
      continue;
    }
    found->ranks.push_back(row->rank);
    found->least = std::min(found->least, one.least);
    found->most = std::max(found->most, one.most);
    if (found->elements == one.elements) continue;
    found->of = nullptr;
    found->elements = found->least == found->most ? fmt::format("{} each", found->least) : fmt::format("{} to {} each", found->least, found->most);
  }
  return out;
}

Table table_of(const Report& report, std::uint32_t step, const std::vector<const AppliedRow*>& rows, const Style& style) {
  Table table;
  std::vector<ColumnGroup> groups = groups_of(rows);
  if (groups.size() > groups_max) {
    table.hidden = groups.size() - groups_max;
    groups.resize(groups_max);
  }
  table.lines.push_back(head_of(groups, step));
  for (Alike& row : alike_rows(report, rows, groups)) {
    const std::string elements = row.of ? elements_that_fit(report, *row.of, style) : row.elements;
    std::sort(row.ranks.begin(), row.ranks.end());
    row.ranks.erase(std::unique(row.ranks.begin(), row.ranks.end()), row.ranks.end());
    std::vector<Cell> line{{ref::numbers_text(row.ranks)}, {elements}};
    line.insert(line.end(), row.cells.begin(), row.cells.end());
    table.lines.push_back(std::move(line));
  }
  return table;
}

// Columns from `begin` that fit beside the first two; one at the least.
std::size_t columns_that_fit(const std::vector<std::size_t>& width, std::size_t begin, std::size_t line) {
  if (line == any_width) return width.size();
  std::size_t used = 2 + width[0] + 2 + width[1], end = begin;
  while (end < width.size() && (end == begin || used + 2 + width[end] <= line)) used += 2 + width[end++];
  return end;
}

std::string text_of(const Table& table, const Style& style) {
  const Paint paint(style.colour);
  std::vector<std::size_t> width(table.lines.front().size(), 0);
  for (const auto& line : table.lines)
    for (std::size_t c = 0; c < line.size(); ++c) width[c] = std::max(width[c], columns_of(line[c].text));
  std::string out;
  for (std::size_t begin = before_cells; begin < width.size();) {
    const std::size_t end = columns_that_fit(width, begin, style.width);
    if (begin > before_cells) out += "  and\n";
    for (const auto& line : table.lines) {
      std::string text = fmt::format("  {:<{}}  {:<{}}", line[0].text, width[0], line[1].text, width[1]);
      for (std::size_t c = begin; c < end; ++c) {
        const std::string cell = c + 1 == end ? line[c].text : fmt::format("{:<{}}", line[c].text, width[c]);
        text += "  " + (line[c].wrong ? paint.wrong(cell) : cell);
      }
      out += text + "\n";
    }
    begin = end;
  }
  if (table.hidden > 0) out += fmt::format("  and {} more groups of contributions, all of them in --json\n", table.hidden);
  return out;
}

}  // namespace

std::string ledger_tables(const Report& report, const Style& style) {
  std::map<std::uint32_t, std::vector<const AppliedRow*>> by_step;
  for (const AppliedRow& row : report.ledger) by_step[row.step].push_back(&row);
  struct Text {
    std::string text;
    bool misplaced = false, open = false;  // some weight in it
    std::vector<std::uint32_t> steps;      // that have it
  };
  std::vector<Text> texts;  // in the order of the first of their steps
  for (const auto& [step, rows] : by_step) {
    // Rows of one step can have been decoded or not: tables of one kind each.
    std::map<std::size_t, std::vector<const AppliedRow*>> by_columns;
    for (const AppliedRow* row : rows) by_columns[row->columns.size()].push_back(row);
    for (const auto& [columns, alike] : by_columns) {
      const std::string text = text_of(table_of(report, step, alike, style), style);
      const bool misplaced = std::any_of(alike.begin(), alike.end(), [](const AppliedRow* row) { return row->row.any_misplaced(); });
      const bool open = std::any_of(alike.begin(), alike.end(), [](const AppliedRow* row) { return row->row.any_open(); });
      const auto same = std::find_if(texts.begin(), texts.end(), [&](const Text& known) { return known.text == text && known.misplaced == misplaced && known.open == open; });
      if (same == texts.end()) texts.push_back({text, misplaced, open, {step}});
      else same->steps.push_back(step);
    }
  }
  std::string out;
  for (const auto& [text, misplaced, open, steps] : texts)
    out += "\n" +
           wrapped(fmt::format("ledger of the gradient applied in {} (weight of each contribution; [observed for due] is wrong{}{})", ref::numbered("step", steps),
                               misplaced ? "; misplaced: what is there of the contribution is due of other elements" : "",
                               open ? "; with ? it is due, and how much is there is not told" : ""),
                   style.width, 2) +
           "\n" + text;
  return out;
}

}  // namespace gradledger::report
