// Words for findings: contributions in short form, and the sentence that a reviewer can quote.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ref/finding.h"
#include "sim/scenario/workload.h"
#include "sim/scenario/timeline.h"

namespace gradledger::ref {

// "1/8", "0", "3/8", "0.0835": a weight as a fraction where it is one.
std::string weight_text(double weight);

// What some elements hold of a contribution: "1/8", or "misplaced", "1/8 and misplaced" where what is due of other elements is there.
std::string observed_text(double weight, bool misplaced);

// "micro-batches 0-2 of ranks 0-1", with steps where they are not `step`.
std::string contributions_text(const std::vector<Miscounted>& contributions, std::uint32_t step);

// "w0[0:30], w1[0:2]": of parameters with these names, or of those of a scenario.
std::string elements_text(const std::vector<std::string>& parameters, const std::vector<ElementRange>& elements, std::size_t ranges_max = 8);
std::string elements_text(const Workload& workload, const std::vector<ElementRange>& elements);

// "0-2, 5".
std::string numbers_text(std::vector<std::uint32_t> numbers);

// "rank 3", "ranks 0-2, 5".
std::string numbered(std::string_view noun, const std::vector<std::uint32_t>& numbers);

// The two operations, where they meet, and the wait that is missing.
std::string race_text(const Race& race, const Timeline& timeline);

std::string sentence_of(const Finding& finding, const Workload& workload, const Timeline& timeline);

}  // namespace gradledger::ref
