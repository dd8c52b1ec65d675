// What a pass showed: which snapshots are due and were judged, and which elements nobody showed. Kept alike for passes of numbers and of weights.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "ref/due.h"
#include "ref/finding.h"
#include "sim/scenario/timeline.h"
#include "sim/scenario/workload.h"

namespace gradledger::ref {

// Names a snapshot of a run; the same in every pass.
struct SnapshotKey {
  std::uint32_t event = 0;
  bool at_end = true;
  std::uint32_t rank = 0;
  std::string buffer;

  auto operator<=>(const SnapshotKey&) const = default;
};

// A snapshot of gradients that was held to what is due.
struct JudgedSnapshot {
  SnapshotKey key;
  Role role = Role::scratch;
  std::uint32_t step = 0;
  std::uint32_t after = never;       // local sums: due are contributions after this reduction
  std::vector<ElementRange> layout;  // of applied gradients
};

struct JudgeStatistics {
  std::uint64_t snapshots = 0;                           // judged
  std::array<std::uint64_t, reasons_not_due> not_due{};  // snapshots of gradients that were not, by reason
  std::uint64_t elements = 0;
  std::uint64_t inconclusive = 0;  // elements whose bound hides a whole contribution, or whose reference is not finite
  double tightest = 0;             // largest error / bound among elements that passed

  void add(const JudgeStatistics& more);
  // An element whose error is within its bound. Few are the tightest so far, and a quotient takes long.
  void passed(double error, double bound) {
    constexpr double rounded_down = 1 - 4 * std::numeric_limits<double>::epsilon();
    if (bound > 0 && error >= tightest * bound * rounded_down) tightest = std::max(tightest, error / bound);
  }
};

class SnapshotBook {
 public:
  // judged: the list that every snapshot that is judged goes to, if any. documented: applied gradients are held to the documentation, which says
  // nothing of what the loop itself does.
  SnapshotBook(const Workload& workload, const Timeline& timeline, std::vector<JudgedSnapshot>* judged, bool documented);

  // What is due of a snapshot; nothing where it is not judged. Precondition: every snapshot of a rank comes, and the end of each of its events, in order.
  std::optional<Due> open(const Shown& shown);
  void raised(std::uint32_t rank, std::uint32_t event) { due_.raised(rank, event); }
  void event_done(std::uint32_t rank, std::uint32_t event) { due_.event_done(rank, event); }
  DueTracker::Seen& seen() { return due_.seen(); }
  DueTracker& tracker() { return due_; }
  void compared_applied(std::uint32_t event) { applied_compared_.insert(event); }

  std::uint32_t window(const Shown& shown) const { return timeline_.window_at(shown.event, shown.at_end, shown.role == Role::applied_gradient ? Layer::meant : Layer::documented); }
  // Of a window: nothing of it is due in an applied gradient.
  bool skipped(std::uint32_t window) const { return skipped_[window]; }

  JudgeStatistics& statistics() { return statistics_; }
  const JudgeStatistics& statistics() const { return statistics_; }
  const std::set<std::uint32_t>& applied() const { return applied_compared_; }  // step events of which some applied element was compared

  // Elements of the window's applied gradient that no rank applied, by step that must update; with a planted value none must. Precondition:
  // the run is over.
  std::map<std::uint32_t, std::vector<ElementRange>> not_applied() const;
  // Likewise for the reduced gradients that must exist after a documented boundary, by event.
  std::map<std::uint32_t, std::vector<ElementRange>> not_reduced() const;
  bool shows_reduced(std::uint32_t event) const { return reduced_.contains(event); }

 private:
  struct Coverage {
    std::vector<std::set<std::pair<std::uint64_t, std::uint64_t>>> ranges;  // by parameter
  };

  void list(const Shown& shown, const Due& due);
  void cover(std::map<std::uint32_t, Coverage>& coverage, const Shown& shown);
  std::vector<ElementRange> holes(const Coverage* coverage, std::uint32_t window, Layer layer) const;
  bool used_in(std::uint32_t window, std::uint32_t parameter, Layer layer) const;

  const Workload& workload_;
  const Timeline& timeline_;
  std::vector<JudgedSnapshot>* judged_;
  bool documented_;
  DueTracker due_;
  std::vector<bool> skipped_, planted_;  // by window
  JudgeStatistics statistics_;
  std::map<std::uint32_t, Coverage> applied_, reduced_;  // by event
  std::set<std::uint32_t> applied_compared_;
};

}  // namespace gradledger::ref
