// One pass, judged as it happens: every snapshot of a judged role against the model, element by element.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "ref/model.h"
#include "ref/slowest_rank.h"
#include "ref/snapshot_book.h"
#include "sim/trace/producer.h"

namespace gradledger::ref {

// A snapshot that is not what it must be.
struct Mismatch {
  SnapshotKey key;
  Role role = Role::scratch;
  std::uint32_t step = 0;
  std::uint32_t after = never;  // local sums: due are contributions after this reduction
  double scale = 1.0;
  std::uint64_t wrong_elements = 0;
  double squared_errors = 0;         // of these, together, in units of the true gradient; infinite where one is not finite
  WorstElement worst;                // largest error over bound; exact comparisons: largest error
  std::vector<ElementRange> ranges;  // of wrong elements, neighbours merged
  std::optional<Quantity> clipping;  // applied gradients that are right but for one common factor: that factor and the due one
};

class PassJudge : public TraceSink {
 public:
  // clipping: what the applied gradient is clipped to; 0 in linear passes. judged: the list that every snapshot that is judged goes to, if any. meant: not owned.
  PassJudge(const Workload& workload, const Timeline& timeline, Model& model, Model::Mode mode, double clipping, std::vector<JudgedSnapshot>* judged = nullptr,
            const MeantModels* meant = nullptr);

  void observe(const Observation& observation) override;
  void engine_error(const EngineErrorRecord& record) override { book_.raised(record.rank, record.event); }
  void event_done(std::uint32_t rank, std::uint32_t event) override;

  const std::vector<Mismatch>& mismatches() const { return mismatches_; }
  const JudgeStatistics& statistics() const { return book_.statistics(); }
  const SnapshotBook& book() const { return book_; }
  DueTracker::Seen& seen() { return book_.seen(); }

 private:
  const Field& due_of(const Observation& observation, const Due& due);
  bool zeros_in_place_of_a_gradient(const Observation& observation);
  void judge_applied(const Observation& observation, std::uint32_t window);
  struct Differences {
    Mismatch mismatch;
    double worst = -1;  // of an element, in units of its bound
    std::uint64_t elements = 0, inconclusive = 0;
    double tightest = 0;
  };
  // What an applied gradient is held to, times a factor that has an error.
  struct Applied {
    const Field* field = nullptr;
    double factor = 1, factor_error = 0;
  };
  bool by_meaning() const { return meant_ && !meant_->or_documented; }
  Applied applied_of(Model& model, const Observation& observation) const;
  Differences differences(const Observation& observation, const Applied& due);
  void add(const Observation& observation, const Due& due, std::uint32_t window, Differences differences);
  void compare_piece(const Observation& observation, const ObservedPiece& piece, const Held& held, Differences& differences);
  bool may_leave_its_range(const Observation& observation, double magnitude) const;
  double least_kept(const Observation& o, Dtype applied) const;
  std::optional<double> common_factor(const Observation& observation, const Field& field);

  const Workload& workload_;
  const Timeline& timeline_;
  Model& model_;
  Model::Mode mode_;
  double clipping_;
  const MeantModels* const meant_;  // null: none
  SnapshotBook book_;
  SlowestRank slowest_;
  std::vector<Mismatch> mismatches_;
  std::vector<ElementRange> elements_;                // of the snapshot at hand
  std::vector<std::span<const std::byte>> contents_;  // likewise
  std::vector<double> stored_;
};

}  // namespace gradledger::ref
