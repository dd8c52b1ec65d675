// The host executor: virtual ranks under a seeded schedule, with true storage and one rounded operation at a time, or on devices that
// it feeds.
#pragma once

#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "sim/execution/collectives.h"
#include "sim/execution/devices.h"
#include "sim/execution/operations.h"
#include "sim/execution/simulation.h"

namespace gradledger {

class HostExecutor final : public Simulation {
 public:
  // Preconditions: the scenario was admitted (sim/load.h) and the timeline is its own; both outlive the executor.
  HostExecutor(const Scenario& scenario, const Timeline& timeline, CollectiveArithmetic arithmetic = CollectiveArithmetic::nccl_ring,
               EngineFactory factory = {});  // empty: those of the scenario's framework
  ~HostExecutor() override;
  HostExecutor(HostExecutor&&);

  std::string_view name() const override { return devices_ ? "gpu" : "host"; }
  Capabilities capabilities() const override { return {.applied_gradients = true, .accumulators = true, .wide = devices_ == nullptr, .weights = devices_ == nullptr}; }

  // Bytes that the operations of all ranks may take: about 5 to 20 of 72 bytes for each rank, event and parameter. They are known only as
  // the engines write them: run() throws ProgramsTooLarge after the event that goes beyond.
  void limit_programs(std::uint64_t bytes) { program_bytes_max_ = bytes; }

  void divide_by(Division division) { division_ = division; }

  // From now on the devices hold the memory and compute; they outlive the executor. Schedule, records and checks are the same, so a trace is
  // equal to the host's, bit for bit, where the devices compute alike and the program is free of races. Dry runs do not touch them.
  void run_on(Devices& devices) { devices_ = &devices; }

  // Linear runs make no decision on values, but for overflows where the script plants some: every source of them must hold what is planted. So their programs
  // are recorded once and run again for every further source. So are those of other runs in which the host read no value.
  RunSummary run(const GradientSource& source, const RunOptions& options, TraceSink& sink) override;

  void take_over(std::vector<Rank> ranks) override { ranks_ = std::move(ranks); }
  void go_on_from(std::vector<Rank> ranks) override {
    ranks_ = std::move(ranks);
    goes_on_ = true;
  }
  std::vector<Rank> hand_over() override { return std::move(ranks_); }
  std::span<const Rank> ranks() const override { return ranks_; }

 private:
  class Run;
  struct Recorded {
    bool linear, observes, wide;

    bool operator==(const Recorded&) const = default;
  };

  std::unique_ptr<Engine> make_engine_of(std::uint32_t rank, bool linear) const;

  const Scenario& scenario_;
  const Timeline& timeline_;
  CollectiveArithmetic arithmetic_;
  Division division_ = Division::quotient;
  EngineFactory factory_;
  std::uint64_t program_bytes_max_ = std::numeric_limits<std::uint64_t>::max();
  Devices* devices_ = nullptr;
  std::vector<Rank> ranks_;
  bool goes_on_ = false;  // ranks_ stand behind the first events
  // Of which kind of runs ranks_ hold complete programs, as any of them would write.
  std::optional<Recorded> recorded_;
};

}  // namespace gradledger
