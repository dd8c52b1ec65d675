// A producer whose ranks run here, under our schedule: after a run they can be looked at, and lent to the next one.
#pragma once

#include <new>
#include <span>
#include <vector>

#include "sim/execution/rank.h"
#include "sim/trace/producer.h"

namespace gradledger {

// The operations of all ranks would take more memory than the producer was given. Nothing is wrong with the scenario but its length.
class ProgramsTooLarge final : public std::bad_alloc {
 public:
  explicit ProgramsTooLarge(std::uint64_t limit) : limit_(limit) {}
  std::uint64_t limit() const { return limit_; }
  const char* what() const noexcept override { return "the programs of the ranks are larger than the limit"; }

 private:
  std::uint64_t limit_;
};

class Simulation : public Producer {
 public:
  // As the last run left them: programs as far as they were written, memory. Searches over orders and states start from these.
  virtual std::span<const Rank> ranks() const = 0;

  // Ranks of a simulation that is done, whose memory this one uses again: many small runs take most of their time from the allocator.
  virtual void take_over(std::vector<Rank> ranks) = 0;
  // Ranks that ran the first events of this script, alone and to their end: the next run goes on with them behind these. Precondition: that run was
  // linear, and their engines look at this simulation's scenario and timeline.
  virtual void go_on_from(std::vector<Rank> ranks) = 0;
  virtual std::vector<Rank> hand_over() = 0;
};

}  // namespace gradledger
