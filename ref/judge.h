// One pass, judged as it happens: every snapshot of a judged role against the model, element by element.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "ref/due.h"
#include "ref/finding.h"
#include "ref/model.h"
#include "sim/trace/producer.h"

namespace gradledger::ref {

// Names a snapshot of a run; the same in every pass.
struct SnapshotKey {
  std::uint32_t event = 0;
  bool at_end = true;
  std::uint32_t rank = 0;
  std::string buffer;

  auto operator<=>(const SnapshotKey&) const = default;
};

// A snapshot that is not what it must be.
struct Mismatch {
  SnapshotKey key;
  Role role = Role::scratch;
  std::uint32_t step = 0;
  std::uint32_t after = never;  // local sums: due are contributions after this reduction
  double scale = 1.0;
  std::uint64_t wrong_elements = 0;
  WorstElement worst;                // largest error over bound; exact comparisons: largest error
  std::vector<ElementRange> ranges;  // of wrong elements, neighbours merged
  std::optional<Quantity> clipping;  // applied gradients that are right but for one common factor: that factor and the due one
  // Copies for the search of misplaced elements, where the snapshot is small.
  std::vector<double> observed, expected;
};

struct JudgeStatistics {
  std::uint64_t snapshots = 0;                           // judged
  std::array<std::uint64_t, reasons_not_due> not_due{};  // snapshots of gradients that were not, by reason
  std::uint64_t elements = 0;
  std::uint64_t inconclusive = 0;  // elements whose bound hides a whole contribution, or whose reference is not finite
  double tightest = 0;             // largest error / bound among elements that passed

  void add(const JudgeStatistics& more);
};

// A snapshot of gradients that was held to what is due.
struct JudgedSnapshot {
  SnapshotKey key;
  Role role = Role::scratch;
  std::uint32_t step = 0;
  std::uint32_t after = never;       // local sums: due are contributions after this reduction
  std::vector<ElementRange> layout;  // of applied gradients
};

class PassJudge : public TraceSink {
 public:
  // By rank, or one for all: what the loop means to be applied. Empty: what the documentation has.
  using Meant = std::vector<std::unique_ptr<Model>>;

  // clipping: what the applied gradient is clipped to; 0 in linear passes. judged: the list that every snapshot that is judged goes to, if any.
  PassJudge(const Workload& workload, const Timeline& timeline, Model& model, Model::Mode mode, double clipping, std::vector<JudgedSnapshot>* judged = nullptr, Meant meant = {});

  void observe(const Observation& observation) override;
  void event_done(std::uint32_t rank, std::uint32_t event) override;

  const std::vector<Mismatch>& mismatches() const { return mismatches_; }
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
    std::vector<std::vector<std::pair<std::uint32_t, std::uint32_t>>> ranges;  // by parameter
  };

  const Field& due_of(const Observation& observation, const Due& due);
  void list(const Observation& observation, const Due& due);
  void judge_applied(const Observation& observation);
  Model& applied_model(std::uint32_t rank) { return meant_.empty() ? model_ : *meant_[meant_.size() == 1 ? 0 : rank]; }
  std::uint32_t window(const Observation& observation) const;
  void compare(const Observation& observation, const Due& due, const Field& field, double factor, double factor_error);
  bool may_leave_its_range(const Observation& observation, double magnitude) const;
  std::optional<double> common_factor(const Observation& observation, const Field& field);
  void cover(std::map<std::uint32_t, Coverage>& coverage, const Observation& observation);
  std::vector<ElementRange> holes(const Coverage* coverage, std::uint32_t window, Layer layer) const;
  bool used_in(std::uint32_t window, std::uint32_t parameter, Layer layer) const;

  const Workload& workload_;
  const Timeline& timeline_;
  Model& model_;
  Model::Mode mode_;
  double clipping_;
  DueTracker due_;
  std::vector<JudgedSnapshot>* judged_;
  Meant meant_;
  std::vector<bool> skipped_, planted_;    // by window
  std::vector<std::uint32_t> rank_event_;  // events done, by rank
  std::vector<Mismatch> mismatches_;
  JudgeStatistics statistics_;
  std::map<std::uint32_t, Coverage> applied_, reduced_;  // by event
  std::set<std::uint32_t> applied_compared_;
  std::vector<double> stored_;
};

}  // namespace gradledger::ref
