// A walk over a script that holds it against what a framework documents of its use.
#pragma once

#include <cstdint>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "sim/frameworks/framework.h"
#include "sim/scenario/timeline.h"

namespace gradledger {

class UseWalk {
 public:
  virtual ~UseWalk() = default;

  UseReport run();

 protected:
  // The first of the rules is that every rank makes the same calls.
  UseWalk(const Timeline& timeline, std::span<const UseRule> rules, std::uint32_t world) : timeline_(timeline), world_(world), rules_(rules), blocks_(world) {}

  // A rule by its number, at the event that is walked over; said once a window.
  void broken(std::size_t rule);
  // Whether a contribution of the window that the event ends is due another weight than what is documented comes to.
  bool weighs_otherwise(const Event& update) const;

  // Whether a window is open at a restore of which the checkpoint, and so the new process, lacks gradients.
  bool lost_at(const Event& restore) const;

  // Whether each parameter is used by all ranks that hold it and run the backward, or by none of them.
  bool parameters_alike(const Workload& workload, const Event& backward) const;

  virtual void leave_no_sync(std::uint32_t rank) = 0;  // the outermost block that the rank is in
  virtual void on_event(const Event& e) = 0;
  virtual void on_rank(const Event& e, std::uint32_t rank) = 0;
  // Equal where what follows breaks the same rules.
  virtual std::uint64_t state() const = 0;

  const Timeline& timeline_;
  const std::uint32_t world_;

 private:
  std::span<const UseRule> rules_;
  // Blocks that each rank is in. An exception leaves all of them.
  void follow_blocks(const Event& e);

  std::uint32_t event_ = 0;
  std::vector<std::uint32_t> blocks_;                     // by rank
  std::set<std::pair<std::size_t, std::uint32_t>> said_;  // by rule and window
  UseReport out_;
};

}  // namespace gradledger
