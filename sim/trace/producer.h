// Producers make traces; sinks consume them. The host executor, a GPU or an external framework are producers alike.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "sim/base/result.h"
#include "sim/scenario/scenario.h"
#include "sim/scenario/timeline.h"
#include "sim/trace/observation.h"
#include "sim/trace/weights.h"

namespace gradledger {

// Every method may be called in any interleaving of ranks; for one rank, in the order of its script.
class TraceSink {
 public:
  virtual ~TraceSink() = default;
  virtual void observe(const Observation&) {}
  virtual void weights(const WeightObservation&) {}  // with RunOptions::weights, in place of observe()
  virtual void collective(const CollectiveRecord&) {}
  virtual void reduction(const ReductionRecord&) {}  // with RunOptions::show_reductions
  virtual void memory(const MemoryRecord&) {}
  virtual void step_fact(const StepRecord&) {}
  virtual void event_done(std::uint32_t /*rank*/, std::uint32_t /*event*/) {}
  virtual void unwritten(const UnwrittenRecord&) {}
  virtual void engine_error(const EngineErrorRecord&) {}
  virtual void deadlock(const DeadlockRecord&) {}
  virtual void mismatch(const MismatchRecord&) {}
  virtual void race(const RaceRecord&) {}
};

// The data of a forward and backward that a producer runs itself, in fp32 and with its own arithmetic. Every value is one that bf16 holds.
class NetworkData {
 public:
  virtual ~NetworkData() = default;
  virtual const Mlp& network() const = 0;
  virtual std::uint32_t batch() const = 0;
  // Sample `sample` of the batch of one backward event on one rank: the input of the first layer, and the target of the last one's output.
  virtual void sample(std::uint32_t backward, std::uint32_t rank, std::uint32_t sample, std::span<float> input, std::span<float> target) const = 0;
};

// The data of a run: what each backward contributes, before any scaling, and what the weights are at the start. Values are fp32 values,
// given as doubles; the engine multiplies by its scale and rounds once when it deposits them.
class GradientSource {
 public:
  virtual ~GradientSource() = default;
  // Elements [offset, offset + out.size()) of the parameter's gradient from one backward event on one rank.
  virtual void gradient(std::uint32_t backward, std::uint32_t rank, std::uint32_t parameter, std::uint64_t offset, std::span<double> out) const = 0;
  virtual void initial_parameter(std::uint32_t parameter, std::uint64_t offset, std::span<double> out) const;
  // Where a producer computes the gradient itself: the network, whose weights are initial_parameter(). Null: gradient() is what is deposited.
  virtual const NetworkData* network_data() const { return nullptr; }
  // What a correct fp32 backward may differ by from gradient(), element by element; 0 where gradient() is the data,
  // infinite where nothing can be told.
  virtual void gradient_error(std::uint32_t backward, std::uint32_t rank, std::uint32_t parameter, std::uint64_t offset, std::span<double> out) const;
  // Puts what the script plants into these elements of a gradient, however it was computed.
  virtual void plant(std::uint32_t /*backward*/, std::uint32_t /*rank*/, std::uint32_t /*parameter*/, std::uint64_t /*offset*/, std::span<double>) const {}
};

struct Schedule {
  // in_order: each rank's operations one after the other, as they were enqueued, so that nothing races: while one waits for other ranks, so do all behind it.
  // first_ready: likewise, but behind one that waits those go on that may.
  enum class Policy : std::uint8_t { seeded, round_robin, replay, in_order, first_ready };
  Policy policy = Policy::seeded;
  std::uint64_t seed = 0;
  std::vector<std::uint16_t> decisions;  // replay: what was recorded
};

struct RunOptions {
  Schedule schedule;
  bool observe_events = true;  // snapshots after every event; false: the applied gradient alone
  // The ledger needs linear engines: decisions that depend on values (clipping, zero-norm assertion) are off. So is the overflow skip,
  // except where the script plants an overflow: then it is the script's decision.
  bool linear = false;
  // Every buffer of gradients is fp64, and so is all arithmetic on them: what is left of weights is their own rounding. Norms and updates do
  // not happen. Needs `linear`, and a producer that can.
  bool wide = false;
  // Instead of numbers, buffers hold which contribution weighs how much, and snapshots reach the sink as weights(). Nothing is computed but
  // what decisions need: flags and counts. Needs `linear`, and a producer that can.
  bool weights = false;
  // No storage and no arithmetic: collectives, allocations, events and their order alone reach the sink. Needs `linear`.
  bool dry = false;
  // No run of the same programs follows, and nobody looks at them after this one: what ran need not be kept. Needs `linear`.
  bool once = false;
  bool show_reductions = false;  // hand the data of all_reduce, reduce and reduce_scatter to the sink; on the host alone
  bool check_streams = false;    // report accesses that no wait orders, after the run
  bool log_decisions = false;    // keep the trace hash after every step of the schedule
};

struct RunSummary {
  std::uint64_t trace_hash = 0;                // everything, decisions included
  std::uint64_t value_hash = 0;                // snapshots alone, independent of the schedule for a race-free program
  std::vector<std::uint16_t> decisions;        // replayable
  std::vector<std::uint64_t> decision_hashes;  // with log_decisions: of everything up to each step of the schedule
  bool replay_diverged = false;                // a recorded decision was not enabled; continued with the seeded policy
  bool completed = false;                      // every rank reached the end of its script
  std::uint64_t operations = 0;
  std::uint32_t ranks_run = 0;   // by themselves at the end; the others did what one of these did. 0: a producer that does not say
  std::uint64_t bytes_peak = 0;  // held by buffers, all ranks
};

// A run broke off for a reason that is not in the scenario: a process, a device or a network failed.
class RunFailure : public std::runtime_error {
 public:
  RunFailure(std::optional<std::uint32_t> rank, const std::string& what) : std::runtime_error(what), rank_(rank) {}
  std::optional<std::uint32_t> rank() const { return rank_; }

 private:
  std::optional<std::uint32_t> rank_;
};

// What a producer promises to show. What it does not promise and does not show is not judged; what it promised and does not show is missing.
struct Capabilities {
  bool applied_gradients = false;  // of every step that updates, on every rank
  bool accumulators = false;       // every buffer that holds a sum of gradients, after every event
  bool wide = false;               // linear runs in fp64
  bool weights = false;            // linear runs on weights
  // A run that is over: every pass shows the same, with the scenario's own gradients, and there is none with others. No `linear`, no schedules.
  bool one_pass = false;
  // Each run costs so much that there may be a handful of them: contributions share a run. See docs/architecture.md, "A handful of runs".
  bool few_runs = false;
};

class Producer {
 public:
  virtual ~Producer() = default;
  virtual std::string_view name() const = 0;
  virtual Capabilities capabilities() const { return {}; }
  virtual RunSummary run(const GradientSource& source, const RunOptions& options, TraceSink& sink) = 0;
};

}  // namespace gradledger
