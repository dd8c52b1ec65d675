// One pass of a producer that shows weights in place of numbers: every snapshot of a judged role against what each contribution must weigh.
// The whole ledger comes from this one pass, whatever the number of contributions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "ref/alike_in_round.h"
#include "ref/judge.h"
#include "ref/ledger.h"
#include "ref/snapshot_book.h"
#include "sim/trace/kept_round.h"
#include "sim/trace/producer.h"

namespace gradledger::ref {

class WeightsJudge final : public TraceSink, public TakesRounds {
 public:
  WeightsJudge(const Workload& workload, const Timeline& timeline, const Ledger& ledger, std::vector<JudgedSnapshot>* judged);

  void weights(const WeightObservation& observation) override;
  // Of buffers that are judged alike, one is judged for all.
  void round_again(KeptRound& round) override;
  void rounds_over(KeptRound& round) override;
  void engine_error(const EngineErrorRecord& record) override { book_.raised(record.rank, record.event); }
  void event_done(std::uint32_t rank, std::uint32_t event) override { book_.event_done(rank, event); }

  const SnapshotBook& book() const { return book_; }
  std::vector<Mismatch> take_mismatches() { return std::move(mismatches_); }  // without numbers: where weights are wrong
  const std::vector<SnapshotKey>& untold() const { return untold_; }          // applied gradients with elements that tell no weights

  // A snapshot with a column for each contribution of its window, and for what it holds of others. Precondition: it was judged, and it is an applied
  // gradient or the first of its rank's window with a mismatch.
  LedgerEntry entry(const SnapshotKey& key) const;
  // Likewise.
  bool wrong(const SnapshotKey& key) const { return kept_.at(key).wrong; }

 private:
  // What ranks [begin, end) weigh in one backward.
  struct RankRun {
    std::uint32_t begin = 0, end = 0;
    double weight = 0;
    auto operator<=>(const RankRun&) const = default;
  };
  using Profile = std::vector<RankRun>;  // apart, by rank; none weighs nothing, neighbours differ
  // Backwards [begin, end), which all weigh alike: a window of thousands is one block where nothing is wrong.
  struct Block {
    std::uint32_t begin = 0, end = 0, profile = 0;
    auto operator<=>(const Block&) const = default;
  };
  using Cells = std::vector<Block>;  // apart, by backward; none has the empty profile, neighbours differ
  struct Piece {
    ElementRange elements;
    WeightPiece::Held held = WeightPiece::Held::weights;
    std::uint32_t cells = 0;      // what contributions to these very elements weigh
    std::uint32_t misplaced = 0;  // contributions to other elements, each as 1
  };
  struct Kept {
    Role role = Role::scratch;
    std::uint32_t step = 0, after = never;
    std::vector<Piece> pieces;
    bool wrong = false;
  };

  Piece taken(const WeightPiece& piece, double scale);
  Cells cells_of(std::vector<WeightTerm> terms, double scale, bool misplaced);
  std::uint32_t due_of(const LedgerEntry& entry, std::uint32_t parameter);
  Cells work_out_due(const LedgerEntry& entry, std::uint32_t parameter);
  struct DueKind;
  void append_due(const LedgerEntry& entry, const DueKind& kind, std::uint32_t begin, std::uint32_t end, Cells& out);
  std::uint32_t due_of_backward(const LedgerEntry& entry, std::uint32_t backward, const DueKind& kind);
  static void append(Cells& cells, const Block& block);
  std::uint32_t number_of(Cells cells);
  std::uint32_t number_of_profile(Profile profile);
  std::vector<std::pair<std::uint32_t, std::uint32_t>> columns_of(const SnapshotKey& key, const Kept& kept, Layer layer) const;
  bool same_on_all_ranks(Role role) const;
  bool balances(std::uint32_t held, std::uint32_t due);
  bool equal(const Cells& a, const Cells& b);
  bool equal_profiles(std::uint32_t a, std::uint32_t b);
  bool same(double held, double due) const;
  bool takes_part(std::uint32_t held, std::uint32_t due) const;
  double weight_in(const Cells& cells, std::uint32_t backward, std::uint32_t rank) const;
  bool weigh_alike(const Piece& a, const Piece& b) const;
  void append_runs(LedgerEntry& entry, const Piece& piece, std::uint64_t begin, std::uint64_t end) const;
  void judge(const WeightObservation& observation, const Due& due, std::uint32_t window);
  void judge_for_all(KeptRound& round, AlikeInRound::Group& group, std::uint32_t number);
  void begin_rounds(KeptRound& round);
  DueTracker::Buffer& buffer_of(const KeptRound& round, std::uint32_t thing);
  void remember(DueTracker::Buffer& buffer, std::span<const WeightPiece> pieces);
  WeightObservation of_each_kind(const KeptRound& round, const AlikeInRound::Group& group, std::uint32_t number, bool in_the_round_before = false);
  void set_apart(KeptRound& round, AlikeInRound::Group& group, const DueTracker::Buffer& seen);

  const Workload& workload_;
  const Timeline& timeline_;
  const Ledger& ledger_;
  SnapshotBook book_;
  std::vector<JudgedSnapshot>* const judged_;  // applied gradients go there, if anywhere
  std::map<Cells, std::uint32_t> numbers_;
  std::vector<const Cells*> cells_;  // by number
  std::map<Profile, std::uint32_t> profile_numbers_;
  std::vector<const Profile*> profiles_;                                                                      // by number; 0: nobody weighs anything
  std::map<std::tuple<std::uint64_t, std::int64_t, double>, std::pair<std::uint32_t, std::uint32_t>> taken_;  // by form, shift, scale
  decltype(taken_)::const_iterator last_taken_ = taken_.end();
  using DueKey = std::tuple<std::uint32_t, bool, Role, std::uint32_t, std::uint32_t, std::uint32_t>;  // event, at_end, role, after, rank, parameter
  std::map<DueKey, std::uint32_t> due_;
  std::optional<std::pair<DueKey, std::uint32_t>> last_due_;
  // By everything that the weight of a backward may differ by between two snapshots which count it: as long as nothing drops or multiplies
  // contributions, it is the same after every event.
  struct DueKind {
    std::uint32_t parameter = 0;
    Role role = Role::scratch;
    std::uint32_t only_rank = 0;
    std::size_t changes = 0;  // before the snapshot
    bool reduced = false, after = false, updates = false;
    auto operator<=>(const DueKind&) const = default;
  };
  std::map<std::pair<std::uint32_t, DueKind>, std::uint32_t> due_of_backward_;  // profiles, by backward
  // What is due of backwards from one on, as far as anybody asked: each event of a window asks for one more.
  struct Grown {
    std::uint32_t end = 0;
    Cells cells;
  };
  std::map<std::pair<std::uint32_t, DueKind>, Grown> grown_;  // by first backward
  std::vector<std::uint32_t> changes_;                        // events that drop or multiply contributions, sorted
  std::map<std::pair<std::uint32_t, std::uint32_t>, bool> compared_, compared_profiles_;
  std::map<SnapshotKey, Kept> kept_;
  std::vector<std::map<std::uint32_t, std::uint32_t>> first_wrong_;  // event, by rank and window
  std::vector<Mismatch> mismatches_;
  std::vector<SnapshotKey> untold_;
  std::vector<ElementRange> elements_;
  std::vector<Piece> pieces_;            // of the snapshot at hand
  std::vector<std::uint64_t> contents_;  // equal where it holds the same
  std::unique_ptr<AlikeInRound> round_;  // that is shown again
  std::vector<WeightPiece> kinds_;       // of a snapshot of it
};

}  // namespace gradledger::ref
