// Who goes next. The policies differ in nothing but the pick; the simulation records what they picked, so that any run replays.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sim/base/hash.h"
#include "sim/execution/runnable_ranks.h"
#include "sim/trace/producer.h"

namespace gradledger {

// Chooses among enabled actions, named by numbers that mean the same in every run: rank, or rank and stream.
class SchedulePolicy {
 public:
  explicit SchedulePolicy(const Schedule& schedule) : policy_(schedule.policy), random_(schedule.seed), replay_(schedule.decisions) {}

  // The index of the action to take. Precondition: enabled is not empty.
  std::size_t pick(std::span<const std::uint16_t> enabled) {
    if (enabled.size() == 1) return 0;
    const std::size_t index = choose(enabled);
    decisions_.push_back(enabled[index]);
    return index;
  }

  // Likewise of ranks: the rank itself.
  std::uint16_t pick(const RunnableRanks& ranks) {
    if (ranks.size() == 1) return ranks[0];
    const bool by_chance = policy_ != Schedule::Policy::round_robin && policy_ != Schedule::Policy::replay;
    if (!by_chance) {
      const std::vector<std::uint16_t> all = ranks.all();
      return all[pick(all)];
    }
    decisions_.push_back(ranks[random_.below(static_cast<std::uint32_t>(ranks.size()))]);
    return decisions_.back();
  }

  bool replay_diverged() const { return diverged_; }
  std::vector<std::uint16_t> take_decisions() { return std::move(decisions_); }

 private:
  std::size_t choose(std::span<const std::uint16_t> enabled) {
    if (policy_ == Schedule::Policy::replay && !diverged_) {
      if (at_ < replay_.size())
        for (std::size_t i = 0; i < enabled.size(); ++i)
          if (enabled[i] == replay_[at_]) {
            ++at_;
            return i;
          }
      diverged_ = true;  // a recorded decision that is not enabled; go on with the seeded policy
    }
    if (policy_ == Schedule::Policy::round_robin) {
      // The next higher number after the last one picked, else the lowest.
      std::size_t next = enabled.size(), lowest = 0;
      for (std::size_t i = 0; i < enabled.size(); ++i) {
        if (enabled[i] < enabled[lowest]) lowest = i;
        if (enabled[i] > last_ && (next == enabled.size() || enabled[i] < enabled[next])) next = i;
      }
      const std::size_t index = next < enabled.size() ? next : lowest;
      last_ = enabled[index];
      return index;
    }
    return random_.below(static_cast<std::uint32_t>(enabled.size()));
  }

  Schedule::Policy policy_;
  SplitMix64 random_;
  std::vector<std::uint16_t> replay_;
  std::size_t at_ = 0;
  std::uint32_t last_ = 0xFFFF;
  bool diverged_ = false;
  std::vector<std::uint16_t> decisions_;
};

}  // namespace gradledger
