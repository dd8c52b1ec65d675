// Recorded runs of PyTorch's wrappers, and that their comparison sees a change in any of their numbers.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "conformance/torch/compare.h"
#include "tests/conformance/recorded_runs.h"

namespace gradledger::conform::torch {

using TorchRun = Run;  // tests have a function of that name

inline std::vector<TorchRun> recorded_runs(const std::string& name) { return runs_of_file<TorchRun>("torch_data/" + name, is_torch_run, read_torch_run); }

// A run of one rank on three parameters, of which nothing was written down but its operations.
inline nlohmann::json line_of(const char* framework, const char* version, const char* config, const char* operations) {
  nlohmann::json out = nlohmann::json::parse(R"({"name": "a", "spec": {"world": 1, "root": [2], "units": [[1], [1]], "sizes": [2, 1, 1], "n_mb": 1, "dtype": "float32"},
      "grads": {"rank0": {"mb0": [[1, 2], [3], [4]]}}, "ranks": [{"trace": []}]})");
  out["framework"] = framework;
  out["version"] = version;
  out["spec"]["config"] = nlohmann::json::parse(config);
  out["spec"]["ops"] = nlohmann::json::parse(operations);
  for (const nlohmann::json& operation : out["spec"]["ops"]) out["ranks"][0]["trace"].push_back({{"op", operation}, {"snap", nlohmann::json::object()}});
  return out;
}

// Why it has no scenario; empty where it has one.
inline std::string outcome_of(const nlohmann::json& line) {
  const auto run = read_torch_run(line);
  if (!run) return run.error().text();
  const auto comparison = judge(*run);
  if (!comparison) return comparison.error().text();
  return comparison->outcome == Outcome::inexpressible ? "inexpressible: " + comparison->why : "";
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

// Every sixth run, but those of which a part is not judged.
inline std::vector<TorchRun> some_of(std::vector<TorchRun> runs) {
  std::erase_if(runs, [n = 0u](const TorchRun& run) mutable { return n++ % 6 != 0 || judge(run)->in_part(); });
  return runs;
}

inline void expect_every_number_counts(const std::vector<TorchRun>& runs) {
  expect_noticed(runs, [](Moment& m) { return !m.buffers.empty() && nudge(m.buffers.rbegin()->second.values); });
  expect_noticed(runs, [](Moment& m) { return !m.weights.empty() && nudge(m.weights.back().values); });
  expect_noticed(runs, [](Moment& m) { return !m.applied.empty() && nudge(m.applied.back().values); });
  const auto shorter = [](std::vector<Weights>& of) {
    if (of.empty() || of.back().values.empty()) return false;
    of.back().values.pop_back();
    return true;
  };
  expect_noticed(runs, [&](Moment& m) { return shorter(m.weights); });
  expect_noticed(runs, [&](Moment& m) { return shorter(m.applied); });
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
