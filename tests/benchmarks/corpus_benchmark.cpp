// Scenarios a second: every file of the corpus, loaded, judged with all its passes. And what judging alone costs, with these and by the symbolic run alone.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <memory>
#include <numeric>
#include <vector>

#include "verbs/session.h"

namespace gradledger {
namespace {

std::vector<std::filesystem::path> corpus() {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(GRADLEDGER_SOURCE_DIR "/scenarios")) {
    const std::string name = entry.path().filename().string();
    if (name.ends_with(".json") && !name.ends_with(".schema.json") && !name.ends_with(".gradients.json")) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

void scenarios_of_the_corpus(benchmark::State& state) {
  const auto files = corpus();
  const verbs::Options options;
  for (auto _ : state) {
    for (const auto& file : files) {
      const auto loaded = verbs::load(file, options, verbs::Use::gate);
      expects(loaded.ok(), "the corpus loads");
      if ((*loaded)->scenario.expect.accounting_only) continue;  // too large to be judged
      const ref::Verdict verdict = verbs::judge(**loaded, options, nullptr);
      benchmark::DoNotOptimize(verdict.findings.size());
    }
  }
  state.counters["scenarios/s"] = benchmark::Counter(static_cast<double>(state.iterations()) * static_cast<double>(files.size()), benchmark::Counter::kIsRate);
  state.counters["scenarios"] = static_cast<double>(files.size());
}
BENCHMARK(scenarios_of_the_corpus)->Unit(benchmark::kMillisecond);

bool of_true_size(const std::filesystem::path& file) { return file.parent_path().filename() == "true-size"; }

void judgements(benchmark::State& state) {
  verbs::Options options;
  if (state.range(0) != 0) options.executor = "symbolic";
  std::vector<std::unique_ptr<verbs::Loaded>> all;
  for (const auto& file : corpus()) {
    if (of_true_size(file) != (state.range(1) != 0)) continue;
    auto loaded = verbs::load(file, options, verbs::Use::gate);
    expects(loaded.ok(), "the corpus loads");
    if (!(*loaded)->scenario.expect.accounting_only) all.push_back(std::move(loaded).value());
  }
  std::vector<double> microseconds(all.size(), HUGE_VAL);  // the least of each
  for (auto _ : state)
    for (std::size_t i = 0; i < all.size(); ++i) {
      const auto begin = std::chrono::steady_clock::now();
      benchmark::DoNotOptimize(verbs::judge(*all[i], options, nullptr).findings.size());
      microseconds[i] = std::min(microseconds[i], std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count());
    }
  std::sort(microseconds.begin(), microseconds.end());
  state.counters["judgements"] = static_cast<double>(all.size());
  state.counters["median_us"] = microseconds[microseconds.size() / 2];
  state.counters["all_ms"] = std::accumulate(microseconds.begin(), microseconds.end(), 0.0) / 1000;
}
BENCHMARK(judgements)->ArgNames({"symbolic", "true_size"})->Args({0, 0})->Args({0, 1})->Args({1, 0})->Args({1, 1})->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace gradledger
