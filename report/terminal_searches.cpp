// Searches for people.
#include <fmt/format.h>

#include "report/terminal.h"
#include "report/words.h"

namespace gradledger::report {
namespace {

std::string found_lines(const FoundRow& row) {
  constexpr const char* indent = "             ";
  if (row.not_taken()) return fmt::format("not taken    {}\n{}{}\n", row.sentence, indent, row.file);
  if (row.gone()) return fmt::format("gone         {:20}  {}\n", row.finding, row.file);
  std::string out = fmt::format("{:11}  {:20}  {:14}  {}{}\n", row.status, row.finding, row.engine, row.shape, usage_mark(row.blame));
  if (row.status == "new") out += fmt::format("{}{}\n", indent, row.sentence);
  if (!row.file.empty()) return out + fmt::format("{}{}\n", indent, row.file);
  return out + fmt::format("{}not written{}\n", indent, row.again.empty() ? "" : "; draw it again: " + row.again);
}

const char* plural(std::uint64_t number) { return number == 1 ? "" : "s"; }

}  // namespace

std::string Terminal::text(const FoundRow& row) const { return fit(found_lines(row)); }

std::string Terminal::text(const FuzzReport& r) const {
  std::string out;
  for (const BrokenCase& broken : r.broken) out += fmt::format("internal error in case {}: {}\n  draw it again: {}\n", broken.number, broken.what, broken.command);
  if (r.nondeterminism) out += fmt::format("not deterministic: {}\n", *r.nondeterminism);
  out += fmt::format("{} cases, {} events on {} rank-events, {} elements compared; {} looked wrong, {} went before the oracle, {} ran twice alike\n", r.cases, r.events,
                     r.rank_events, r.compared, r.suspicious, r.judged, r.reruns);
  if (r.not_run > 0) out += fmt::format("{} of the cases were not run: the framework, or its driver, does not take them\n", r.not_run);
  if (r.canary) out += fmt::format("canary: the fault that must be found was, after {} case{}\n", *r.canary, plural(*r.canary));
  else out += "canary: the fault that must be found was NOT; what this campaign says means nothing\n";
  if (!r.ended_by.empty()) out += fmt::format("ended by {}: the cases from {} on are left{}\n", r.ended_by, r.next, r.of_shards ? ", or some of them" : "; --resume goes on there");
  return fit(out + fmt::format("{:.1f} s, {:.0f} cases a second\n", r.seconds, static_cast<double>(r.cases - r.cases_before) / r.seconds));
}

std::string Terminal::text(const DifferenceRow& row) const { return fit(fmt::format("{}\n  {}\n  {}\n", row.shape, row.text, fmt::join(row.files, "  "))); }

std::string Terminal::text(const DifferSummary& s) const {
  return fit(fmt::format("{} cases, {} compared, {} differ, {} of them unlike each other{}\n", s.cases, s.compared, s.differing, s.unlike,
                         s.ended_by.empty() ? "" : "; ended by " + s.ended_by));
}

std::string Terminal::text(const HuntHead& hunt) const {
  return fit(head(hunt.command) + fmt::format("{:14} {:16} {:>7} {:>8}  {:20} {:>6} {:>6}  {}\n", "entry", "as of", "cases", "seconds", "found as", "events", "known", "shape"));
}

std::string Terminal::text(const HuntRow& row) const {
  return fit(fmt::format("{:14} {:16} {:>7} {:>8.2f}  {:20} {:>6} {:>6}  {}\n", row.entry, row.as_of, row.found ? std::to_string(row.cases) : "-", row.seconds,
                         row.found ? row.finding : "NOT FOUND", row.found ? std::to_string(row.events) : "", row.events_known, row.found ? row.shape : row.title));
}

std::string Terminal::text(const HuntSummary& s) const {
  std::string out = fmt::format("{} of {} entries found; scripts are {} event{} longer than the shortest known one, in the median\n", s.found, s.rows, s.events_above_known,
                                s.events_above_known == 1 ? "" : "s");
  if (s.of_loops > 0) out += fmt::format("{} entries are of loops that state what they mean, which no drawn script does: left out\n", s.of_loops);
  return fit(out);
}

std::string Terminal::text(const ExploreReport& r) const {
  std::string out = fmt::format(
      "{}: {} up to {} events; {} states, {} transitions, depth {}; {} led to a state met before, {} to something wrong, {} were refused, "
      "{} leave the documentation, {} mirror others ({:.1f} s)\n",
      r.engine, r.complete ? "complete" : "NOT complete", r.length, r.states, r.transitions, r.depth, r.merged, r.wrong, r.refused, r.undocumented, r.mirrored, r.seconds);
  if (r.not_run > 0) out += fmt::format("  {} sequences were not run: the framework, or its driver, does not take them\n", r.not_run);
  for (const FoundRow& f : r.found) out += fmt::format("  {:20}  {}{}\n", f.finding, f.shape, usage_mark(f.blame));
  return fit(out);
}

std::string Terminal::text(const OrdersReport& r) const {
  const char* how_far = r.complete ? "complete: every order" : r.every_choice ? "NOT complete: every choice, but not from all values" : "NOT complete";
  std::string out = fmt::format("{}: {}; {} states, {} transitions, {} states of single ranks, depth {} ({:.1f} s)\n", r.scenario, how_far, r.states, r.transitions, r.rank_states,
                                r.depth, r.seconds);
  if (r.mismatch) out += "  ranks meet with different calls: nothing was searched\n";
  if (r.deadlock) out += "  every order ends in a deadlock\n";
  if (r.receives_pass) out += fmt::format("  {}\n", receives_pass_text);
  out += fmt::format("  {} outcome{} in memory, {} in values; {} race{} by happens-before: {}\n", r.outcomes, plural(r.outcomes), r.outcomes_in_values, r.races.size(),
                     plural(r.races.size()), r.agreement);
  for (const RaceRecord& race : r.races)
    out += fmt::format("  race: rank {}, {}[{}:{}]: {} and {}\n", race.rank, race.buffer, race.begin, race.end, race.first.operation, race.second.operation);
  return fit(out);
}

}  // namespace gradledger::report
