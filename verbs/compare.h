// Two producers on one scenario, held against each other bit for bit.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "report/runs.h"
#include "sim/trace/transcript.h"
#include "verbs/session.h"

namespace gradledger::verbs {

// What --compare takes: the empty string, or why not.
std::string check_compare(const std::string& text);

struct Compared {
  std::uint64_t runs = 0, records = 0;  // of each producer
  bool races = false;                   // values are then the schedule's, and nothing is compared
  std::optional<TraceDifference> difference;
  std::string gradients;  // the kind with which they differ
};

// Throws ProgramsTooLarge and RunFailure.
Compared compare_producers(const Loaded& loaded, const Options& options);

// One line: "equal: 1234 records of 2 runs", or where they part.
std::string text_of(const Compared& compared, const Loaded& loaded, const Options& options);

// Likewise throws.
report::ProducersReport compare_report(const Loaded& loaded, const Options& options);

}  // namespace gradledger::verbs
