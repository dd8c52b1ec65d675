// Audits for people: the verdict first.
#include <algorithm>

#include <fmt/format.h>

#include "report/terminal.h"
#include "report/words.h"

namespace gradledger::report {
namespace {

std::string cells_text(const AuditMatrix& matrix) {
  std::vector<std::vector<std::string>> table{{matrix.corner}};
  table[0].insert(table[0].end(), matrix.columns.begin(), matrix.columns.end());
  for (const AuditMatrix::Row& row : matrix.rows) {
    table.push_back({row.name});
    table.back().insert(table.back().end(), row.cells.begin(), row.cells.end());
  }
  std::vector<std::size_t> width(table[0].size(), 0);
  for (const auto& line : table)
    for (std::size_t c = 0; c < line.size(); ++c) width[c] = std::max(width[c], line[c].size());
  std::string out = "\n";
  for (const auto& line : table) {
    std::string text = " ";
    for (std::size_t c = 0; c < line.size(); ++c) text += fmt::format(" {:<{}} ", line[c], width[c]);
    out += text.substr(0, text.find_last_not_of(' ') + 1) + "\n";
  }
  return out;
}

std::string section(const char* title, const std::vector<std::string>& lines) {
  if (lines.empty()) return "";
  std::string out = fmt::format("\n{}\n", title);
  for (const std::string& line : lines) out += fmt::format("  {}\n", line);
  return out;
}

std::string answer_text(const AuditReport& r) {
  std::string out;
  switch (r.outcome) {
    case AuditOutcome::affected: out = fmt::format("AFFECTED: {}\n", r.verdict); break;
    case AuditOutcome::not_affected: out = "not affected\n"; break;
    case AuditOutcome::not_judged: out = "NOT JUDGED: see below for what is missing\n"; break;
  }
  for (const AuditEffect& e : r.effects) out += fmt::format("  {}: {}\n", e.kind, e.sentence);
  if (r.releases.size() == 1 && !r.since.empty()) out += fmt::format("  with every release of {} that is known\n", r.framework);
  else if (!r.since.empty()) out += fmt::format("  in {} since {}, fixed in {}\n", r.framework, r.since, r.fixed);
  return out;
}

std::vector<std::string> finding_lines(const AuditReport& r) {
  std::vector<std::string> out;
  for (const Finding& f : r.findings) {
    std::string line(name_of(f.finding));
    if (f.blame) line += f.blame->whose == ref::Whose::usage ? ": the loop leaves what is documented" : ": the framework's";
    if (f.known) line += fmt::format("; known: {} {}, {}{}{}", f.known->entry, f.known->name, f.known->title, f.known->origin.empty() ? "" : ", ", f.known->origin);
    if (f.known && f.known->ranks < r.ranks) line += fmt::format(" (compared with the first {} ranks)", f.known->ranks);
    if (f.occurrences > 1) line += fmt::format(" ({} alike)", f.occurrences);
    out.push_back(line);
    out.push_back("  " + f.sentence);
  }
  return out;
}

std::vector<std::string> read_lines(const AuditReport& r) {
  std::vector<std::string> out{fmt::format("{} ({}), {}", r.framework, r.engine, r.described), fmt::format("loop {}: {}", r.loop, r.loop_says)};
  out.insert(out.end(), r.packages.begin(), r.packages.end());
  out.push_back(fmt::format("model: {}", r.model));
  for (const AuditFilled& f : r.filled) out.push_back(fmt::format("{} = {}: {}", f.pointer, f.value, f.why));
  if (!r.ignored.empty()) out.push_back(fmt::format("not about gradients, ignored: {}", fmt::join(r.ignored, ", ")));
  if (!r.unknown.empty()) out.push_back(fmt::format("unknown, ignored: {}", fmt::join(r.unknown, ", ")));
  out.insert(out.end(), r.notes.begin(), r.notes.end());
  return out;
}

std::vector<std::string> advice_lines(const AuditReport& r, bool clean) {
  std::vector<std::string> out;
  if (clean && r.outcome == AuditOutcome::affected && std::none_of(r.advice.begin(), r.advice.end(), [](const AuditAdvice& x) { return x.clean; }))
    out.emplace_back("nothing that was tried");
  for (const AuditAdvice& a : r.advice)
    if (a.clean == clean) out.push_back(clean ? a.says : fmt::format("{}: {}", a.says, a.verdict));
  return out;
}

}  // namespace

std::string Terminal::text(const AuditReport& r) const {
  std::string out = head(r.command) + answer_text(r);
  out += section(fmt::format("what that means for {}", r.optimizer).c_str(), r.meaning);
  out += section("what helps (each was replayed and is clean)", advice_lines(r, true));
  out += section("what was tried and does not help", advice_lines(r, false));
  out += section("findings", finding_lines(r));
  std::vector<std::string> releases;
  for (const AuditReleases& x : r.releases) releases.push_back(fmt::format("{:<20} {}{}", x.releases, x.verdict, x.current ? "  <- yours" : ""));
  if (r.matrices.empty()) out += section("by release", releases);
  for (const AuditMatrix& matrix : r.matrices) out += cells_text(matrix);
  out += section("not judged", r.not_judged);
  out += section("read as", read_lines(r));
  out += fmt::format("\n{} ranks, {} micro-batches a window, {} windows; {} runs judged, {} more do the same as one of them\n", r.ranks, r.micro_batches, r.windows, r.judged_runs,
                     r.runs_alike);
  return fit(out) + fmt::format("replay it with: {}\n", r.replay_command);
}

}  // namespace gradledger::report
