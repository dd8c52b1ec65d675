#include "report/words.h"

#include <algorithm>

#include <fmt/format.h>

#include "report/audit.h"
#include "report/escape.h"

namespace gradledger::report {

std::string_view name_of(AuditOutcome outcome) {
  switch (outcome) {
    case AuditOutcome::not_affected: return "not affected";
    case AuditOutcome::affected: return "affected";
    case AuditOutcome::not_judged: return "not judged";
  }
  return "";
}

std::string printable(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c == '\n' || c == '\r' || c == '\t'; }, ' ');
  return printable_text(text);
}

std::string overrides_text(const std::vector<Override>& overrides) {
  std::string out;
  for (const Override& one : overrides) out += fmt::format("{}{} {}", out.empty() ? "" : ", ", one.option, printable(one.argument));
  return out;
}

std::string in_short(const std::string& text) {
  constexpr std::size_t length_max = 1000;
  if (text.size() <= length_max) return printable(text);
  std::size_t end = length_max;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;  // not within a character
  return printable(text.substr(0, end)) + "...";
}

namespace {

std::string_view why(ref::NotTold reason, bool of_weights) {
  switch (reason) {
    case ref::NotTold::rounding: return "in which rounding hides weights, though not absences";
    case ref::NotTold::planted: return "in which a planted overflow hides weights";
    case ref::NotTold::open: return "in which several weights explain the values";
    case ref::NotTold::approximated:
      return of_weights ? "of averages that are documented to be approximations, of which it is told that each contribution takes part, and not how much it weighs"
                        : "of averages that are documented to be approximations, whose values do not tell how much each contribution weighs";
    case ref::NotTold::not_finite: return "in which an infinity or NaN hides weights";
    case ref::NotTold::symbolic: return "in which some weight is beyond fractions of 62 bits, or some value is no sum of contributions";
  }
  return "";
}

}  // namespace

std::vector<std::string> inconclusive_rows(const Report& report) {
  std::vector<std::string> out;
  for (std::size_t i = 0; i < ref::reasons_not_told; ++i)
    if (const std::uint64_t rows = report.inconclusive_rows.by_reason[i]; rows > 0)
      out.push_back(fmt::format("{} {} of the ledger, {}", rows, rows == 1 ? "row" : "rows", why(static_cast<ref::NotTold>(i), report.symbolic)));
  return out;
}

std::string names_of(const std::vector<ref::FindingClass>& classes) {
  std::string out;
  for (const ref::FindingClass c : classes) out += (out.empty() ? "" : ", ") + std::string(name_of(c));
  return out;
}

std::string verdict_text(const CoverageRow& row) {
  if (!row.problem.empty()) return "open: " + row.problem;
  return row.entry->not_covered.empty() ? "as expected" : "not covered";
}

std::string place_before(const std::string& file, const Problem& problem) {
  if (!problem.at.known() || problem.text.starts_with(file)) return "";
  return fmt::format("{}:{}:{}: ", printable_line(file), problem.at.line, problem.at.column);
}

std::string buffer_family(const std::string& buffer) { return buffer.substr(0, buffer.find('[')); }

std::string usage_mark(const ref::Blame& blame) { return blame.whose == ref::Whose::usage ? fmt::format(", usage ({})", blame.rule) : ""; }

std::string of_fewer_ranks(const ref::KnownDefect& known, std::uint32_t world_size) {
  if (known.ranks == world_size) return "";
  return fmt::format(" That is what the script shows with the first {} ranks; with all {} the releases were not compared.", known.ranks, world_size);
}

const std::string_view known_not_looked_for =
    "not looked for; the run is too large to be judged again as each release has it, and fewer of its ranks do not show this or cannot run by themselves. Fewer micro-batches, or "
    "smaller parameters, tell.";

std::string size_text(std::uint64_t bytes) {
  constexpr std::uint64_t mebibyte = 1u << 20;
  if (bytes < mebibyte) return fmt::format("{} B", bytes);
  if (bytes % mebibyte == 0) return fmt::format("{} MiB", bytes / mebibyte);
  return fmt::format("{:.3f} MiB", static_cast<double>(bytes) / static_cast<double>(mebibyte));
}

}  // namespace gradledger::report
