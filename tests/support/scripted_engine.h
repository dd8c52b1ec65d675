// Engines whose programs a test writes by hand, and sinks that keep what they see.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sim/execution/host_executor.h"
#include "sim/numeric/kernels.h"
#include "tests/support/scenarios.h"

namespace gradledger::testing {

// Hands every event to a function; the function writes operations.
class ScriptedEngine final : public Engine {
 public:
  struct Hooks {
    std::function<void(std::uint32_t rank, ProgramWriter&)> initialise = [](std::uint32_t, ProgramWriter&) {};
    std::function<void(std::uint32_t rank, const Event&, ProgramWriter&)> handle = [](std::uint32_t, const Event&, ProgramWriter&) {};
    std::function<void(std::uint32_t rank, double value, ProgramWriter&)> resume;
    std::function<void(std::uint32_t rank, ProgramWriter&)> observe = [](std::uint32_t, ProgramWriter&) {};
  };

  ScriptedEngine(const Hooks& hooks, std::uint32_t rank) : hooks_(&hooks), rank_(rank) {}
  std::unique_ptr<Engine> clone() const override { return std::make_unique<ScriptedEngine>(*this); }
  void initialise(ProgramWriter& w) override { hooks_->initialise(rank_, w); }
  void handle(const Event& event, ProgramWriter& w) override {
    hooks_->handle(rank_, event, w);
    suspended_ = hooks_->resume != nullptr;
  }
  bool suspended() const override { return suspended_; }
  void resume(double value, ProgramWriter& w) override {
    suspended_ = false;
    hooks_->resume(rank_, value, w);
  }
  void observe(ProgramWriter& w) override { hooks_->observe(rank_, w); }

 private:
  const Hooks* hooks_;
  std::uint32_t rank_;
  bool suspended_ = false;
};

// Everything that happened, snapshots as doubles by rank, event and buffer.
class Keeper final : public TraceSink {
 public:
  void observe(const Observation& o) override {
    std::vector<double>& values = snapshots[{o.rank, o.event, std::string(o.buffer)}];
    values.clear();
    for (const ObservedPiece& piece : o.pieces) {
      const std::size_t at = values.size();
      values.resize(at + piece.numel);
      numeric::convert(Dtype::float64, values.data() + at, piece.dtype, piece.data, piece.numel);
    }
  }
  void collective(const CollectiveRecord& r) override { collectives.push_back(r); }
  void memory(const MemoryRecord& r) override { allocations.emplace_back(std::string(r.buffer), r.allocated); }
  void step_fact(const StepRecord& r) override { facts[{r.rank, r.event, r.fact}] = r.value; }
  void unwritten(const UnwrittenRecord& r) override { unwritten_records.push_back(r); }
  void engine_error(const EngineErrorRecord& r) override { errors.push_back(r); }
  void deadlock(const DeadlockRecord& r) override { deadlock_record = r; }
  void mismatch(const MismatchRecord& r) override {
    mismatch_record = r;
    ++mismatches;
  }
  void race(const RaceRecord& r) override { races.push_back(r); }

  std::map<std::tuple<std::uint32_t, std::uint32_t, std::string>, std::vector<double>> snapshots;
  std::vector<CollectiveRecord> collectives;
  std::vector<std::pair<std::string, bool>> allocations;
  std::map<std::tuple<std::uint32_t, std::uint32_t, StepFact>, double> facts;
  std::vector<UnwrittenRecord> unwritten_records;
  std::vector<EngineErrorRecord> errors;
  std::optional<DeadlockRecord> deadlock_record;
  std::optional<MismatchRecord> mismatch_record;  // the last one
  std::size_t mismatches = 0;
  std::vector<RaceRecord> races;
};

// Small integers that differ between backward, rank and element.
class CountingSource final : public GradientSource {
 public:
  void gradient(std::uint32_t backward, std::uint32_t rank, std::uint32_t, std::uint64_t offset, std::span<double> out) const override {
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<double>(1 + backward + 10 * rank + 100 * (offset + i));
  }
};

struct ScriptedRun {
  Keeper seen;
  RunSummary summary;
};

// One step event on `world` ranks, run by engines with these hooks.
inline ScriptedRun run_scripted(std::uint32_t world, const ScriptedEngine::Hooks& hooks, const RunOptions& options = {}, std::vector<ScriptItem> script = {step()},
                                std::uint32_t pipeline_stages = 1, Division division = Division::quotient) {
  Scenario scenario = base_scenario(world, {8}, Dtype::float32);
  scenario.script = std::move(script);
  scenario.engine.pipeline_stages = pipeline_stages;
  const auto timeline = make_timeline(scenario);
  HostExecutor executor(scenario, *timeline, CollectiveArithmetic::nccl_ring, [&hooks](const EngineContext& c) { return std::make_unique<ScriptedEngine>(hooks, c.rank); });
  executor.divide_by(division);
  ScriptedRun run;
  run.summary = executor.run(CountingSource{}, options, run.seen);
  return run;
}

}  // namespace gradledger::testing
