// Recorded runs of PyTorch's wrappers, and that their comparison sees a change in any of their numbers.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include "sim/scenario/json_reader.h"
#include "conformance/files.h"
#include "conformance/torch/compare.h"

namespace gradledger::conform::torch {

using TorchRun = Run;  // tests have a function of that name

inline std::vector<TorchRun> recorded_runs(const std::string& name) {
  const auto file = std::filesystem::path(GRADLEDGER_SOURCE_DIR) / "tests/conformance/torch_data" / name;
  std::vector<TorchRun> out;
  const auto error = for_each_line(file.string(), [&](const std::string& line, const std::string& where) -> std::optional<InputError> {
    const auto document = read_json(line);
    if (!document || !is_torch_run(*document)) return InputError{where, "is no run of a wrapper of PyTorch's"};
    auto run = read_torch_run(*document);
    if (!run) return InputError{where, run.error().text()};
    out.push_back(std::move(run).value());
    return std::nullopt;
  });
  EXPECT_FALSE(error) << error->text();
  return out;
}

struct Agreement {
  std::uint64_t agree = 0, elements = 0, collectives = 0;

  bool operator==(const Agreement&) const = default;
};

inline std::ostream& operator<<(std::ostream& out, const Agreement& a) { return out << a.agree << " runs, " << a.elements << " elements, " << a.collectives << " collectives"; }

// Of runs that all agree.
inline Agreement agreement_of(const std::vector<TorchRun>& runs) {
  Agreement out;
  for (const TorchRun& run : runs) {
    const auto comparison = judge(run);
    if (!comparison) {
      ADD_FAILURE() << run.name << ": " << comparison.error().text();
      continue;
    }
    EXPECT_EQ(comparison->outcome, Outcome::agrees) << run.name << ": " << comparison->why;
    out.agree += comparison->outcome == Outcome::agrees;
    out.elements += comparison->elements;
    out.collectives += comparison->collectives;
  }
  return out;
}

// Whether the comparison notices that one number of some moment is another; `change` says whether it found one to change.
template <class Change>
void expect_noticed(const std::vector<TorchRun>& runs, Change&& change) {
  std::uint64_t changed = 0;
  for (TorchRun run : runs) {
    bool done = false;
    for (std::vector<Moment>& moments : run.ranks)
      for (Moment& moment : moments)
        if (!done && (done = change(moment))) break;
    if (!done) continue;
    ++changed;
    EXPECT_EQ(judge(run)->outcome, Outcome::differs) << run.name;
  }
  EXPECT_GT(changed, 0u);
}

inline bool nudge(std::vector<double>& values) {
  if (values.empty() || !std::isfinite(values.back())) return false;
  values.back() = std::nextafter(values.back(), 1e300);
  return true;
}

// Every sixth run, but those of which a part is not judged.
inline std::vector<TorchRun> some_of(std::vector<TorchRun> runs) {
  std::erase_if(runs, [n = 0u](const TorchRun& run) mutable { return n++ % 6 != 0 || judge(run)->in_part(); });
  return runs;
}

inline void expect_every_number_counts(const std::vector<TorchRun>& runs) {
  expect_noticed(runs, [](Moment& m) { return !m.buffers.empty() && nudge(m.buffers.rbegin()->second.values); });
  expect_noticed(runs, [](Moment& m) { return !m.weights.empty() && nudge(m.weights.back().values); });
  expect_noticed(runs, [](Moment& m) { return !m.applied.empty() && nudge(m.applied.back().values); });
  expect_noticed(runs, [](Moment& m) { return !m.transfers.empty() && m.error.empty() && nudge(m.transfers.rbegin()->second.in); });
  expect_noticed(runs, [](Moment& m) { return !m.transfers.empty() && m.error.empty() && nudge(m.transfers.rbegin()->second.out); });
  expect_noticed(runs, [](Moment& m) { return !m.collectives.empty() && ++m.collectives.back().numel > 0; });
  expect_noticed(runs, [](Moment& m) {
    if (m.collectives.empty()) return false;
    m.collectives.pop_back();
    return true;
  });
  expect_noticed(runs, [](Moment& m) {
    if (m.error.empty() || m.error.size() >= 600 || m.error.starts_with("Planned: ")) return false;  // longer ones were cut; planned ones stand for any
    m.error += "?";
    return true;
  });
}

}  // namespace gradledger::conform::torch
