// Words that more than one format uses.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "report/corpus.h"
#include "report/report.h"

namespace gradledger::report {

// What a file says, as a line of a report: lines joined, other control characters as printable_text() has them; of a long text its beginning.
std::string printable(std::string text);
std::string in_short(const std::string& text);

// "2 rows of the ledger, in which rounding hides weights, though not absences": for each reason that there is.
std::vector<std::string> inconclusive_rows(const Report& report);

// What a search over orders of streams leaves out of a pipeline.
inline constexpr std::string_view receives_pass_text = "a stage of the pipeline does not wait here for what other stages send; replay finds one that waits for ever";

// "boundary-leak, wrong-scale"
std::string names_of(const std::vector<ref::FindingClass>& classes);

// "as expected", "not covered", "open: " and why.
std::string verdict_text(const CoverageRow& row);

// "a.json:12:5: ": where a problem is, in front of its text; nothing where that is not known, or the text begins with it.
std::string place_before(const std::string& file, const Problem& problem);

// "--as-of 0.19.0, --config zero_optimization.stage=2"
std::string overrides_text(const std::vector<Override>& overrides);

// "fp32_groups_gradients_flat" of "fp32_groups_gradients_flat[0]".
std::string buffer_family(const std::string& buffer);

// ", usage (single-boundary)" or nothing.
std::string usage_mark(const ref::Blame& blame);

// " That is what the script shows with the first 2 ranks; ..." or nothing.
std::string of_fewer_ranks(const ref::KnownDefect& known, std::uint32_t world_size);

// Why a known defect was not looked for.
extern const std::string_view known_not_looked_for;

// 0, 12 B, 3.25 MiB: exact where it can be.
std::string size_text(std::uint64_t bytes);

}  // namespace gradledger::report
