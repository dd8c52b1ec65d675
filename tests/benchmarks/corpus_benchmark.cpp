// Scenarios a second: every file of the corpus, loaded, judged with all its passes.
#include <benchmark/benchmark.h>

#include <filesystem>

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

}  // namespace
}  // namespace gradledger
