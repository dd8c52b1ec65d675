#include "report/terminal.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "ref/describe.h"
#include "sim/base/limits.h"

namespace gradledger::report {
namespace {

using ref::AppliedRow;

class Paint {
 public:
  explicit Paint(bool colour) : colour_(colour) {}
  std::string wrong(const std::string& text) const { return wrap("31;1", text); }
  std::string right(const std::string& text) const { return wrap("32", text); }
  std::string faint(const std::string& text) const { return wrap("2", text); }

 private:
  std::string wrap(const char* code, const std::string& text) const { return colour_ ? fmt::format("\033[{}m{}\033[0m", code, text) : text; }
  bool colour_;
};

std::string header(const Report& report) {
  std::string as_of = report.as_of.base;
  for (const auto& [name, value] : report.as_of.switches) as_of += fmt::format(", {}={}", name, value);
  std::string out = fmt::format("# {}\n", report.command);
  out += fmt::format("# {}: {} as of {}, {}\n", report.scenario, report.engine, as_of, report.described);
  out += fmt::format("# {} ranks, {} elements in {} parameters, {}; producer {}\n", report.world_size, report.elements, report.parameters.size(), name_of(report.model_dtype),
                     report.producer);
  constexpr std::size_t plants_max = 4;
  for (std::size_t i = 0; i < report.planted.size(); ++i) {
    if (i == plants_max) {
      out += fmt::format("# planted: and {} more\n", report.planted.size() - plants_max);
      break;
    }
    const Planted& plant = report.planted[i];
    out += fmt::format("# planted: {} in {}[0] of micro-batch {} of rank {}, step {}\n", plant.value, plant.parameter, plant.at.micro_batch, plant.at.rank, plant.at.step);
  }
  std::string note = report.note;  // for people, with whatever in it
  std::replace_if(
      note.begin(), note.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }, ' ');
  if (!note.empty()) out += fmt::format("# {}\n", note);
  for (const std::string& replaced : report.driver_notes) out += fmt::format("# driver: {}\n", replaced);
  return out;
}

std::string fact_text(StepFact fact, double value) {
  if (fact == StepFact::skipped) return value != 0 ? "overflow, skipped" : "no overflow";
  if (fact == StepFact::updated) return value != 0 ? "updated" : "no update";
  return fmt::format("{} {:.6g}", name_of(fact), value);
}

std::string event_lines(const Report& report, const Paint& paint) {
  std::string out = "\nevent  rank  what                          gradients held (role, norm; * out of balance) and collectives issued\n";
  for (const EventLine& line : report.events) {
    std::vector<std::string> parts;
    for (const EventLine::Buffer& buffer : line.buffers) {
      if (buffer.role == Role::scratch) continue;
      const std::string text = fmt::format("{}{} ({}, {:.6g})", buffer.wrong ? "*" : "", buffer.name, name_of(buffer.role), buffer.norm);
      parts.push_back(buffer.wrong ? paint.wrong(text) : text);
    }
    for (const std::string& collective : line.collectives) parts.push_back(paint.faint("-> " + collective));
    for (const auto& [fact, value] : line.facts) parts.push_back(fact_text(fact, value));
    out += fmt::format("{:5}  {:4}  {:28}  {}\n", line.event, line.rank, line.what, parts.empty() ? "-" : fmt::format("{}", fmt::join(parts, "; ")));
  }
  return out;
}

// ---- the ledger -------------------------------------------------------------------------------------------------------------------

// Neighbouring micro-batches of a rank whose cells are alike in every row of the step share a column.
struct ColumnGroup {
  std::uint32_t step, rank, first, last;
  std::size_t index;  // of its first column
};

std::vector<ColumnGroup> groups_of(const std::vector<const AppliedRow*>& rows) {
  const std::vector<Contribution>& columns = rows.front()->columns;
  std::vector<std::size_t> order(columns.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return columns[a] < columns[b]; });
  std::vector<ColumnGroup> groups;
  for (std::size_t k : order) {
    const Contribution& c = columns[k];
    const auto cells = [&](std::size_t i) {
      std::vector<std::pair<double, double>> out;
      for (const AppliedRow* row : rows) out.emplace_back(row->row.observed[i], row->row.expected[i]);
      return out;
    };
    const bool dark = std::all_of(rows.begin(), rows.end(), [&](const AppliedRow* r) { return r->row.observed[k] == 0 && r->row.expected[k] == 0; });
    if (dark) continue;  // other windows that left nothing behind
    if (!groups.empty()) {
      ColumnGroup& last = groups.back();
      if (last.step == c.step && last.rank == c.rank && last.last + 1 == c.micro_batch && cells(last.index) == cells(k)) {
        last.last = c.micro_batch;
        continue;
      }
    }
    groups.push_back({c.step, c.rank, c.micro_batch, c.micro_batch, k});
  }
  return groups;
}

std::string step_table(const Report& report, const Paint& paint, std::uint32_t step, const std::vector<const AppliedRow*>& rows) {
  constexpr std::size_t columns_max = 24;
  std::vector<ColumnGroup> groups = groups_of(rows);
  const std::size_t hidden = groups.size() > columns_max ? groups.size() - columns_max : 0;
  if (hidden > 0) groups.resize(columns_max);
  std::vector<std::vector<std::string>> table;
  std::vector<std::vector<bool>> wrong;
  std::vector<std::string> head{"rank", "elements"};
  for (const ColumnGroup& g : groups) {
    const std::string mb = g.first == g.last ? fmt::format("m{}", g.first) : fmt::format("m{}-{}", g.first, g.last);
    head.push_back(fmt::format("{}r{} {}", g.step == step ? "" : fmt::format("s{} ", g.step), g.rank, mb));
  }
  table.push_back(head);
  wrong.push_back(std::vector<bool>(head.size(), false));
  for (const AppliedRow* row : rows) {
    table.push_back({fmt::format("{}", row->rank), ref::elements_text(report.parameters, row->row.elements)});
    wrong.push_back({false, false});
    for (const ColumnGroup& g : groups) {
      const double observed = row->row.observed[g.index], expected = row->row.expected[g.index];
      const bool off = observed != expected;
      table.back().push_back(off ? fmt::format("[{} for {}]", ref::weight_text(observed), ref::weight_text(expected)) : ref::weight_text(observed));
      wrong.back().push_back(off);
    }
  }
  std::vector<std::size_t> width(head.size(), 0);
  for (const auto& line : table)
    for (std::size_t c = 0; c < line.size(); ++c) width[c] = std::max(width[c], line[c].size());
  std::string out = fmt::format("\nledger of the gradient applied in step {} (weight of each contribution; [observed for due] is wrong)\n", step);
  for (std::size_t r = 0; r < table.size(); ++r) {
    for (std::size_t c = 0; c < table[r].size(); ++c) {
      const std::string cell = c + 1 == table[r].size() ? table[r][c] : fmt::format("{:<{}}", table[r][c], width[c]);
      out += (c ? "  " : "  ") + (wrong[r][c] ? paint.wrong(cell) : cell);
    }
    out += "\n";
  }
  if (hidden > 0) out += fmt::format("  and {} more groups of contributions, all of them in --json\n", hidden);
  return out;
}

// ---- the verdict ------------------------------------------------------------------------------------------------------------------

// "usage (single-boundary). The backward at a boundary ...".
std::string blame_text(const ref::Blame& blame) { return fmt::format("{}{}. {}", name_of(blame.whose), blame.rule.empty() ? "" : fmt::format(" ({})", blame.rule), blame.why); }

// "catalogue-1 host-accumulator-unused-at-one-step (DeepSpeed#7981), host accumulator ...; since 0.16.0 or before, fixed in 0.19.0. Keep the optimizer ...".
std::string known_text(const ref::KnownDefect& d) {
  std::string out = fmt::format("{} {}{}, {}", d.entry, d.name, d.origin.empty() ? "" : fmt::format(" ({})", d.origin), d.title);
  if (!d.since.empty()) out += fmt::format("; since {}", d.since);
  if (!d.fixed.empty()) out += fmt::format("{} fixed in {}.", d.since.empty() ? ";" : ",", d.fixed);
  else out += d.since.empty() ? "; by a switch that was set by hand." : ", fixed in no release.";
  return out + (d.avoid.empty() ? "" : " To avoid it: " + d.avoid);
}

// Where nothing is due a bound is next to nothing, and a quotient says no more than that.
std::string error_text(const ref::WorstElement& w) {
  if (w.bound == 0) return "the comparison is exact";
  const double times = w.error() / w.bound;
  return times < 1000 ? fmt::format("the error is {:.3g} times its bound", times) : "the error is more than 1000 times its bound";
}

std::string finding_lines(const Report& report, const Paint& paint) {
  std::map<ref::FindingClass, std::vector<const Finding*>> by_class;
  for (const Finding& f : report.findings) by_class[f.finding].push_back(&f);
  std::string out;
  for (const auto& [kind, all] : by_class) {
    const Finding& first = *all.front();
    out += paint.wrong(first.sentence) + "\n";
    if (first.blame) out += fmt::format("  whose: {}\n", blame_text(*first.blame));
    if (first.known) out += fmt::format("  known: {}\n", known_text(*first.known));
    if (first.too_large)
      out += fmt::format("  known: not looked for; the contributions have more than {} elements together, and each release would be judged. Smaller parameters tell.\n",
                         limits::compared_elements_max);
    if (first.race) {
      if (first.race->others > 0) out += fmt::format("  and {} more pairs of operations in the same window\n", first.race->others);
      if (!first.race_command.empty()) out += fmt::format("  values that differ: {}\n", first.race_command);
    }
    if (first.worst) {
      const ref::WorstElement& w = *first.worst;
      out += fmt::format("  worst element: {}[{}] is {:.9g} (0x{:0{}x}), due {:.9g}; {}\n", report.parameters.at(w.parameter), w.element, w.observed, w.bits, 2 * size_of(w.dtype),
                         w.expected, error_text(w));
    }
    if (all.size() == 1) continue;
    std::vector<std::uint32_t> steps, ranks;
    for (const Finding* f : all) {
      steps.push_back(f->step);
      ranks.push_back(f->rank);
    }
    out += fmt::format("  and {} more like it: {}, {}\n", all.size() - 1, ref::numbered("step", steps), ref::numbered("rank", ranks));
  }
  return out;
}

// "judged: 576 of 600 snapshots of gradients (12 unchanged, 12 scratch), 3 of 3 windows".
std::string coverage_lines(const ref::Coverage& c) {
  std::vector<std::string> rest;
  for (std::size_t i = 0; i < ref::reasons_not_due; ++i)
    if (c.not_judged[i] > 0) rest.push_back(fmt::format("{} {}", c.not_judged[i], name_of(static_cast<ref::NotDue>(i))));
  std::string out = fmt::format("judged: {} of {} snapshots of gradients{}, {} of {} windows that a step closes\n", c.judged, c.snapshots(),
                                rest.empty() ? "" : fmt::format(" ({})", fmt::join(rest, ", ")), c.windows_judged, c.windows_closed);
  if (!c.not_shown.empty()) out += fmt::format("not judged: the gradient that is applied at {}, which nobody showed\n", ref::numbered("event", c.not_shown));
  std::map<StepFact, std::vector<std::uint32_t>> ranks;
  for (const ref::MissingFact& m : c.missing) ranks[m.fact].push_back(m.rank);
  for (const auto& [fact, of] : ranks) out += fmt::format("not judged: {} of {} steps, which {} did not report\n", name_of(fact), of.size(), ref::numbered("rank", of));
  return out;
}

std::string verdict_lines(const Report& report, const Paint& paint) {
  std::string out = "\nverdict\n";
  const Statistics& s = report.statistics;
  switch (report.outcome()) {
    case Outcome::nothing_judged: out += paint.wrong("nothing judged: " + report.coverage.nothing) + "\n"; break;
    case Outcome::clean:
      out += paint.right(fmt::format("clean: every contribution of every rank and micro-batch has its due weight, and {} values lie within their bounds.",
                                     s.values.elements + s.parameters.elements)) +
             "\n";
      break;
    case Outcome::findings: out += finding_lines(report, paint); break;
  }
  out += coverage_lines(report.coverage);
  const std::uint64_t inconclusive = s.values.inconclusive + s.parameters.inconclusive;
  if (inconclusive > 0) out += fmt::format("inconclusive: {} values, whose bound or reference means nothing\n", inconclusive);
  if (report.inconclusive_rows > 0) out += fmt::format("inconclusive: {} rows of the ledger, in which rounding hides weights, though not absences\n", report.inconclusive_rows);
  if (report.contributions_not_decoded > 0)
    out += fmt::format("not decoded: {} of {} contributions, past the limit of one judgement\n", report.contributions_not_decoded, report.contributions);
  if (report.open) out += "open: the script ends with gradients that no step has applied\n";
  out += paint.faint(fmt::format("{} fingerprint, {} decode and {} value passes; trace {:016x}", report.fingerprint_passes, report.decode_passes, report.value_passes,
                                 report.run.trace_hash)) +
         "\n";
  out += fmt::format("repeat with: {}\n", report.command);
  return out;
}

// The ledger of the gradients that were applied, wrong cells marked.
std::string ledger_table(const Report& report, const Paint& paint) {
  std::map<std::uint32_t, std::vector<const AppliedRow*>> by_step;
  for (const AppliedRow& row : report.ledger) by_step[row.step].push_back(&row);
  std::string out;
  for (const auto& [step, rows] : by_step) {
    // Rows of one step can have been decoded or not: tables of one kind each.
    std::map<std::size_t, std::vector<const AppliedRow*>> by_columns;
    for (const AppliedRow* row : rows) by_columns[row->columns.size()].push_back(row);
    for (const auto& [columns, alike] : by_columns) out += step_table(report, paint, step, alike);
  }
  return out;
}

}  // namespace

std::string Terminal::head(const std::string& command) const { return fmt::format("# {}\n", command); }

std::string Terminal::between() const { return "\n"; }

std::string Terminal::text(const Report& report) const {
  const Paint paint(style_.colour);
  std::string out = header(report);
  if (!report.in_short) out += event_lines(report, paint);
  return out + ledger_table(report, paint) + verdict_lines(report, paint);
}

std::unique_ptr<Renderer> make_terminal(const Style& style) { return std::make_unique<Terminal>(style); }

}  // namespace gradledger::report
