// Recorded runs as they lie in the tree, in a form of their own, and what their comparison comes to.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <ostream>
#include <string>
#include <vector>

#include "sim/scenario/json_reader.h"
#include "conformance/compare.h"
#include "conformance/files.h"

namespace gradledger::conform {

// is_run, read: of the form. `file` lies under tests/conformance.
template <class Run>
std::vector<Run> runs_of_file(const std::string& file, bool (*is_run)(const nlohmann::json&), Result<Run> (*read)(const nlohmann::json&)) {
  const auto path = std::filesystem::path(GRADLEDGER_SOURCE_DIR) / "tests/conformance" / file;
  std::vector<Run> out;
  const auto error = for_each_line(path.string(), [&](const std::string& line, const std::string& where) -> std::optional<InputError> {
    const auto document = read_json(line);
    if (!document || !is_run(*document)) return InputError{where, "is no run in this form"};
    auto run = read(*document);
    if (!run) return InputError{where, run.error().text()};
    out.push_back(std::move(run).value());
    return std::nullopt;
  });
  EXPECT_FALSE(error) << error->text();
  return out;
}

struct RunTotals {
  std::uint64_t agree = 0, elements = 0, collectives = 0;

  bool operator==(const RunTotals&) const = default;
};

inline std::ostream& operator<<(std::ostream& out, const RunTotals& a) { return out << a.agree << " runs, " << a.elements << " elements, " << a.collectives << " collectives"; }

// Of runs that all agree.
template <class Run>
RunTotals agreement_of(const std::vector<Run>& runs) {
  RunTotals out;
  for (const Run& run : runs) {
    const auto comparison = judge(run);
    if (!comparison) {
      ADD_FAILURE() << run.name << ": " << comparison.error().text();
      continue;
    }
    EXPECT_EQ(comparison->outcome, Outcome::agrees) << run.name << " at " << run.version << ": " << comparison->why;
    out.agree += comparison->outcome == Outcome::agrees;
    out.elements += comparison->elements;
    out.collectives += comparison->collectives;
  }
  return out;
}

inline bool nudge(double& value) {
  if (!std::isfinite(value)) return false;
  value = std::nextafter(value, 1e300);
  return true;
}
inline bool nudge(std::vector<double>& values) { return !values.empty() && nudge(values.back()); }

}  // namespace gradledger::conform
