#include "report/terminal.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "ref/describe.h"
#include "report/escape.h"
#include "report/terminal_replay.h"
#include "report/words.h"

namespace gradledger::report {
namespace {

// The classes that were found, each once, or what was found instead.
std::string verdict_of(const Report& report) {
  std::vector<std::string> classes;
  for (const Finding& f : report.findings)
    if (std::find(classes.begin(), classes.end(), name_of(f.finding)) == classes.end()) classes.emplace_back(name_of(f.finding));
  switch (report.outcome()) {
    case Outcome::clean: return "clean";
    case Outcome::nothing_judged: return "nothing judged";
    case Outcome::findings: break;
  }
  return fmt::format("{}", fmt::join(classes, ", "));
}

// What was judged, in lines for people.
std::vector<std::string> described(const Report& report) {
  std::string as_of = report.as_of.base;
  for (const auto& [name, value] : report.as_of.switches) as_of += fmt::format(", {}={}", name, value);
  std::vector<std::string> out{fmt::format("{} as of {}, {}", report.engine, as_of, report.described),
                               fmt::format("{} ranks, {} elements in {} parameters, {}; producer {}", report.world_size, report.elements, report.parameters.size(),
                                           name_of(report.model_dtype), report.producer)};
  if (!report.overrides.empty()) out.push_back("not as the file says: " + overrides_text(report.overrides));
  constexpr std::size_t plants_max = 4;
  for (std::size_t i = 0; i < report.planted.size(); ++i) {
    if (i == plants_max) {
      out.push_back(fmt::format("planted: and {} more", report.planted.size() - plants_max));
      break;
    }
    const Planted& plant = report.planted[i];
    out.push_back(fmt::format("planted: {} in {}[0] of micro-batch {} of rank {}, step {}", plant.value, plant.parameter, plant.at.micro_batch, plant.at.rank, plant.at.step));
  }
  if (!report.note.empty()) out.push_back(report.note);
  if (!report.trace_lacks.empty()) out.push_back(fmt::format("not in the trace: {}", fmt::join(report.trace_lacks, ", ")));
  for (const std::string& replaced : report.driver_notes) out.push_back("driver: " + replaced);
  return out;
}

// ---- the verdict ------------------------------------------------------------------------------------------------------------------

// "usage (single-boundary). The backward at a boundary ...".
std::string blame_text(const ref::Blame& blame) { return fmt::format("{}{}. {}", name_of(blame.whose), blame.rule.empty() ? "" : fmt::format(" ({})", blame.rule), blame.why); }

// "catalogue-1 host-accumulator-unused-at-one-step (DeepSpeed#7981), host accumulator ...; since 0.16.0 or before, fixed in 0.19.0. To avoid it: ...".
std::string known_text(const ref::KnownDefect& d, std::uint32_t world_size) {
  std::string out = fmt::format("{} {}{}, {}", d.entry, d.name, d.origin.empty() ? "" : fmt::format(" ({})", d.origin), d.title);
  if (!d.since.empty()) out += fmt::format("; since {}", d.since);
  if (!d.fixed.empty()) out += fmt::format("{} fixed in {}.", d.since.empty() ? ";" : ",", d.fixed);
  else out += d.since.empty() ? "; by a switch that was set by hand." : ", fixed in no release.";
  return out + (d.avoid.empty() ? "" : " To avoid it: " + d.avoid) + of_fewer_ranks(d, world_size);
}

// Where nothing is due a bound is next to nothing, and a quotient says no more than that.
std::string error_text(const ref::WorstElement& w) {
  if (w.bound == 0) return "the comparison is exact";
  const double times = w.error() / w.bound;
  return times < 1000 ? fmt::format("the error is {:.3g} times its bound", times) : "the error is more than 1000 times its bound";
}

// Line by line, so that each is wrapped by itself.
class Lines {
 public:
  explicit Lines(const Style& style) : style_(style) {}
  void add(const std::string& text) { text_ += wrapped(text, style_.width, 2) + "\n"; }
  void below(const std::string& text) { text_ += wrapped("  " + text, style_.width, 4) + "\n"; }
  void wrong(const std::string& text) { text_ += Paint(style_.colour).wrong(wrapped(text, style_.width, 2)) + "\n"; }
  void right(const std::string& text) { text_ += Paint(style_.colour).right(wrapped(text, style_.width, 2)) + "\n"; }
  void whole(const std::string& text) { text_ += text + "\n"; }  // to be copied
  void faint(const std::string& text) { text_ += Paint(style_.colour).faint(wrapped(text, style_.width, 2)) + "\n"; }
  const std::string& text() const { return text_; }

 private:
  Style style_;
  std::string text_;
};

void add_findings(const Report& report, const Style& style, Lines& lines) {
  std::map<ref::FindingClass, std::vector<const Finding*>> by_class;
  for (const Finding& f : report.findings) by_class[f.finding].push_back(&f);
  for (const auto& [kind, all] : by_class) {
    const Finding& first = *all.front();
    lines.wrong(in_short(first.sentence));
    if (style.detail == Detail::verdict) continue;
    if (first.at.known()) lines.below(fmt::format("at: {}:{}:{}, {}", printable_line(report.file), first.at.line, first.at.column, first.pointer));
    if (first.blame) lines.below(fmt::format("whose: {}", blame_text(*first.blame)));
    if (first.known) lines.below(fmt::format("known: {}", known_text(*first.known, report.world_size)));
    if (first.too_large) lines.below(fmt::format("known: {}", known_not_looked_for));
    if (first.race) {
      if (first.race->others > 0) lines.below(fmt::format("and {} more pairs of operations in the same window", first.race->others));
      if (!first.race_command.empty()) lines.whole(fmt::format("  values that differ: {}", first.race_command));
    }
    if (first.worst) {
      const ref::WorstElement& w = *first.worst;
      lines.below(fmt::format("worst element: {}[{}] is {:.9g} (0x{:0{}x}), due {:.9g}; {}", report.parameters.at(w.parameter), w.element, w.observed, w.bits, 2 * size_of(w.dtype),
                              w.expected, error_text(w)));
    }
    if (all.size() == 1) continue;
    std::vector<std::uint32_t> steps, ranks;
    for (const Finding* f : all) {
      steps.push_back(f->step);
      ranks.push_back(f->rank);
    }
    lines.below(fmt::format("and {} more like it: {}, {}", all.size() - 1, ref::numbered("step", steps), ref::numbered("rank", ranks)));
  }
}

// "judged: 576 of 600 snapshots of gradients (12 unchanged, 12 scratch), 3 of 3 windows".
void add_coverage(const ref::Coverage& c, Lines& lines) {
  std::vector<std::string> rest;
  for (std::size_t i = 0; i < ref::reasons_not_due; ++i)
    if (c.not_judged[i] > 0) rest.push_back(fmt::format("{} {}", c.not_judged[i], name_of(static_cast<ref::NotDue>(i))));
  lines.add(fmt::format("judged: {} of {} snapshots of gradients{}, {} of {} windows that a step closes", c.judged, c.snapshots(),
                        rest.empty() ? "" : fmt::format(" ({})", fmt::join(rest, ", ")), c.windows_judged, c.windows_closed));
  if (!c.not_shown.empty()) lines.add(fmt::format("not judged: the gradient that is applied at {}, which nobody showed", ref::numbered("event", c.not_shown)));
  std::map<StepFact, std::vector<std::uint32_t>> ranks;
  for (const ref::MissingFact& m : c.missing) ranks[m.fact].push_back(m.rank);
  for (const auto& [fact, of] : ranks) lines.add(fmt::format("not judged: {} of {} steps, which {} did not report", name_of(fact), of.size(), ref::numbered("rank", of)));
}

// What a run that is over does not say.
void add_what_is_not_told(const Report& report, Lines& lines) {
  if (!report.left_out.empty()) lines.add(fmt::format("not judged: {}", in_short(report.left_out)));
  if (report.unexplained > 0) lines.add(fmt::format("not explained: {} snapshots, whose values are wrong in a way that no weights of contributions make", report.unexplained));
  lines.add(fmt::format("one pass, of a run that is over; no recording tells: {}", recordings_do_not_tell));
}

void add_verdict(const Report& report, const Style& style, Lines& lines) {
  const Statistics& s = report.statistics;
  switch (report.outcome()) {
    case Outcome::nothing_judged: lines.wrong("nothing judged: " + in_short(report.coverage.nothing)); break;
    case Outcome::clean:
      lines.right(
          fmt::format("clean: {}{}.",
                      report.inconclusive_rows.total() == 0 ? "every contribution of every rank and micro-batch has its due weight"
                                                            : "every weight of a rank and micro-batch that is told is the one that is due",
                      report.value_passes == 0 && report.symbolic ? "" : fmt::format(", and {} values lie within their bounds", s.values.elements + s.parameters.elements)));
      break;
    case Outcome::findings: add_findings(report, style, lines); break;
  }
  add_coverage(report.coverage, lines);
  const std::uint64_t inconclusive = s.values.inconclusive + s.parameters.inconclusive;
  if (inconclusive > 0) lines.add(fmt::format("inconclusive: {} values, whose bound or reference means nothing", inconclusive));
  for (const std::string& rows : inconclusive_rows(report)) lines.add("inconclusive: " + rows);
  if (report.contributions_not_decoded > 0)
    lines.add(fmt::format("not decoded: {} of {} contributions, past the limit of one judgement", report.contributions_not_decoded, report.contributions));
  if (report.not_taken_apart > 0) lines.add(fmt::format("not named: {} more snapshots whose weights are wrong, past the limit of one ledger", report.not_taken_apart));
  if (report.not_listed > 0) lines.add(fmt::format("not listed: the applied gradients of {} more snapshots, past the limit of one ledger", report.not_listed));
  for (const std::string& sentence : report.runs_leave_out) lines.add("not judged: " + sentence);
  if (report.open) lines.add("open: the script ends with gradients that no step has applied");
}

// Which runs the verdict rests on.
std::string passes_text(const Report& report) {
  if (report.symbolic) return fmt::format("1 symbolic run for the weights, {} value passes", report.value_passes);
  return fmt::format("{} fingerprint, {} decode and {} value passes", report.fingerprint_passes, report.decode_passes, report.value_passes);
}

}  // namespace

std::string Terminal::head(const std::string& command) const { return fmt::format("# {}\n", command); }

std::string Terminal::between() const { return "\n"; }

std::string Terminal::text(const Report& report) const {
  Lines lines(style_);
  const std::string title = fmt::format("{}: {}", in_short(report.scenario), verdict_of(report));
  if (report.outcome() == Outcome::clean) lines.right(title);
  else lines.wrong(title);
  if (style_.detail == Detail::verdict) {
    if (report.outcome() == Outcome::clean) add_coverage(report.coverage, lines);
    else add_verdict(report, style_, lines);
    return lines.text();
  }
  for (const std::string& line : described(report)) lines.add("# " + printable(line));
  lines.add("");
  add_verdict(report, style_, lines);
  if (!report.command.empty()) lines.whole(fmt::format("repeat with: {}", report.command));
  if (report.one_pass) add_what_is_not_told(report, lines);
  else lines.faint(fmt::format("{}; trace {:016x}", passes_text(report), report.run.trace_hash));
  return lines.text() + ledger_tables(report, style_) + (report.in_short ? "" : event_lines(report, style_));
}

std::unique_ptr<Renderer> make_terminal(const Style& style, const Origin&) { return std::make_unique<Terminal>(style); }

}  // namespace gradledger::report
