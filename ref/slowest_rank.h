// How far the slowest rank has come, where ranks come one event further at a time: what lies before is past for all of them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace gradledger::ref {

class SlowestRank {
 public:
  explicit SlowestRank(std::uint32_t world) : done_(world, 0), at_least_(world) {}

  // Every rank has done the events below this number. Looks at all ranks only when the last of the slowest ones moves on.
  std::uint32_t done(std::uint32_t rank, std::uint32_t event) {
    const bool was_slowest = done_[rank] == least_ && event + 1 > least_;
    done_[rank] = event + 1;
    if (!was_slowest || --at_least_ > 0) return least_;
    least_ = *std::min_element(done_.begin(), done_.end());
    at_least_ = static_cast<std::uint32_t>(std::count(done_.begin(), done_.end(), least_));
    return least_;
  }

 private:
  std::vector<std::uint32_t> done_;  // events, by rank
  std::uint32_t least_ = 0;
  std::uint32_t at_least_;  // ranks that have done no more
};

}  // namespace gradledger::ref
