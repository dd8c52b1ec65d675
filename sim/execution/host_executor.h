// The host executor: virtual ranks under a seeded schedule, with true storage and one rounded operation at a time, or on devices that
// it feeds.
#pragma once

#include <functional>
#include <limits>
#include <memory>
#include <new>
#include <span>
#include <vector>

#include "sim/execution/collectives.h"
#include "sim/execution/devices.h"
#include "sim/execution/rank.h"
#include "sim/trace/producer.h"

namespace gradledger {

// The operations of all ranks would take more memory than the executor was given. Nothing is wrong with the scenario but its length.
class ProgramsTooLarge final : public std::bad_alloc {
 public:
  explicit ProgramsTooLarge(std::uint64_t limit) : limit_(limit) {}
  std::uint64_t limit() const { return limit_; }
  const char* what() const noexcept override { return "the programs of the ranks are larger than the limit"; }

 private:
  std::uint64_t limit_;
};

class HostExecutor final : public Producer {
 public:
  // Preconditions: the scenario was admitted (sim/load.h) and the timeline is its own; both outlive the executor.
  HostExecutor(const Scenario& scenario, const Timeline& timeline, CollectiveArithmetic arithmetic = CollectiveArithmetic::nccl_ring,
               EngineFactory factory = {});  // empty: those of the scenario's framework
  ~HostExecutor() override;
  HostExecutor(HostExecutor&&);

  std::string_view name() const override { return devices_ ? "gpu" : "host"; }
  Capabilities capabilities() const override { return {.applied_gradients = true, .accumulators = true, .wide = devices_ == nullptr}; }

  // Bytes that the operations of all ranks may take: about 5 to 20 of 48 bytes for each rank, event and parameter. They are known only as
  // the engines write them: run() throws ProgramsTooLarge after the event that goes beyond.
  void limit_programs(std::uint64_t bytes) { program_bytes_max_ = bytes; }

  // From now on the devices hold the memory and compute; they outlive the executor. Schedule, records and checks are the same, so a trace is
  // equal to the host's, bit for bit, where the devices compute alike and the program is free of races. Dry runs do not touch them.
  void run_on(Devices& devices) { devices_ = &devices; }

  // Linear runs make no decision on values, but for overflows where the script plants some: every source of them must hold what is planted.
  // So their programs are recorded once and run again for every further source.
  RunSummary run(const GradientSource& source, const RunOptions& options, TraceSink& sink) override;

  // Ranks of an executor that is done, whose memory this one uses again: many small runs take most of their time from the allocator.
  void take_over(std::vector<Rank> ranks) { ranks_ = std::move(ranks); }
  std::vector<Rank> hand_over() { return std::move(ranks_); }

  // As the last run left them: programs as far as they were written, memory.
  std::span<const Rank> ranks() const { return ranks_; }

 private:
  class Run;

  std::unique_ptr<Engine> make_engine_of(std::uint32_t rank, bool linear) const;

  const Scenario& scenario_;
  const Timeline& timeline_;
  CollectiveArithmetic arithmetic_;
  EngineFactory factory_;
  std::uint64_t program_bytes_max_ = std::numeric_limits<std::uint64_t>::max();
  Devices* devices_ = nullptr;
  std::vector<Rank> ranks_;
  bool recorded_ = false;          // ranks_ hold complete programs of a linear run
  bool recorded_observes_ = false, recorded_wide_ = false;
};

}  // namespace gradledger
