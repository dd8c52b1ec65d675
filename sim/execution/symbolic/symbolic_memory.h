// The memory of all ranks as linear forms, and what operations and collectives make of it: which contribution weighs how much in which
// element, exactly, in one run. Casts and rounding leave forms as they are; norms and updates of weights do not happen, as in fp64 runs.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "sim/execution/rank_classes.h"
#include "sim/execution/symbolic/steady_forms.h"
#include "sim/execution/symbolic/stretches.h"
#include "sim/program/program.h"
#include "sim/scenario/timeline.h"
#include "sim/scenario/workload.h"
#include "sim/trace/weights.h"

namespace gradledger {

// A rank that takes part in a collective, in the order of its group.
struct SymbolicParticipant {
  std::uint32_t rank = 0;
  const CollectiveCall* call = nullptr;
};

// Of a class of ranks (rank_classes.h) its leader alone has buffers: what the others hold are the same forms, each so many elements further on.
class SymbolicMemory {
 public:
  // classes: outlive the memory; none: each rank by itself.
  SymbolicMemory(const Workload& workload, const Timeline& timeline, const RankClasses* classes = nullptr);

  // Room for the program's buffers, and for those that it has declared since.
  void prepare(std::uint32_t rank, const Program& program);

  // Precondition: kind is one of storage, arithmetic or update, and the rank leads. False, and nothing happened: ranks of its class no longer hold the same
  // forms after it, and are to do it each by itself.
  [[nodiscard]] bool execute(const Op& op, std::uint32_t rank, const Program& program);
  // root: an index into the participants. leaves: told of a rank that does not receive what its class does, before anything is written; it is by itself then.
  using Leaves = std::function<void(std::uint32_t rank)>;
  void perform(std::span<const SymbolicParticipant> participants, std::uint32_t root, const Leaves& leaves = {});
  // An all_reduce of leaders, each beside others of its class who do the same among themselves, at their places: whether theirs comes to the same, and all of them.
  bool may_reduce_apart(std::span<const SymbolicParticipant> leaders);
  // Precondition: it may, and was asked last of these.
  void reduce_apart(std::span<const SymbolicParticipant> leaders);

  // ---- classes
  // The rank's own buffers, as a leader has them for it.
  void stand_apart(std::uint32_t rank, std::uint32_t leader);
  // Of a buffer of a rank that leads, from one place to another.
  void copy_within(std::uint32_t rank, const Slice& from, const Slice& to);
  // Whether what ranks of the class hold differs by where it lies.
  bool has_paces(std::uint32_t leader) const;
  // Nobody is left in its class.
  void forget_paces(std::uint32_t rank);

  // What the host reads: a flag or a count. Contributions count as 0 but where the script plants an overflow in one.
  double scalar(std::uint32_t rank, Slice slice);

  // ---- rounds that repeat (steady_forms.h)
  // Whether anybody wrote some of a buffer since its memory was taken or given back.
  bool holds_something(std::uint32_t rank, BufferId id) const { return id < buffers_[rank].size() && buffers_[rank][id].alike() != LinearForms::poison; }
  // A word for what these buffers hold of contributions before a backward, and for where.
  std::uint64_t held_before(std::uint32_t rank, std::span<const BufferId> buffers, std::uint32_t backward);
  bool settled(std::uint32_t rank, SteadyForms& forms) const;
  // As so many rounds later. Precondition: settled.
  void pass(std::uint32_t rank, SteadyForms& forms, std::uint64_t rounds);
  LinearForms& forms() { return forms_; }

  // Valid until the next call, terms for as long as this lives.
  std::span<const WeightPiece> show(std::uint32_t rank, const View& view);
  // Likewise of one more rank of the class. Precondition: of the same memory as what was shown last of its leader, and nothing happened since.
  std::span<const WeightPiece> show_member(std::uint32_t rank, const View& view);

 private:
  PiecewiseBuffer& buffer(std::uint32_t rank, BufferId id);
  void read(std::uint32_t rank, Slice slice, Stretches& out) { buffer(rank, slice.buffer).read(slice.offset, slice.numel, out); }
  // Likewise of any rank of a class.
  void read_any(std::uint32_t rank, Slice slice, Stretches& out);
  Stretch as_of(std::int64_t places, Stretch s) const;
  void write(std::uint32_t rank, Slice slice, const Stretches& in) {
    PiecewiseBuffer& to = buffer(rank, slice.buffer);
    if (!shares_.empty() && slice.numel == to.numel()) forget_share(rank, slice.buffer);
    to.write(slice.offset, in);
  }

  void write_one(std::uint32_t rank, Slice target, FormId form, std::int64_t origin);
  void deposit(const Op& op, std::uint32_t rank);
  FormId deposited(std::uint32_t backward, double scalar);
  void interleave(const Interleaving& of, Slice target, std::uint32_t rank);
  void part_rows(const Interleaving& of, Slice source, std::uint32_t rank);
  void accumulate(std::uint32_t rank, Slice target, const Stretches& more);
  void scale(std::uint32_t rank, Slice target, double factor, bool divides);
  bool finite(std::uint32_t rank, Slice slice);
  // The quotient of whole numbers that a framework's fp64 scalar stands for: the simplest that rounds to it. Nothing where none does.
  static std::optional<Rational> quotient_of(double factor);
  Stretch sum_of(const Stretch& a, const Stretch& b);
  Stretch told(Stretch s) const;
  // A stretch of what is shown, and of which piece of the view it is.
  struct ShownStretch {
    std::uint32_t piece = 0;
    Stretch held;
  };
  std::span<const WeightPiece> say(std::uint32_t rank, const View& view);
  // A form as its rank says it, with its terms.
  struct Said {
    std::uint32_t rank = no_index;
    FormId form = LinearForms::poison;
    double constant = 0;
    std::span<const WeightTerm> terms;
  };
  const Said& said_by(std::uint32_t rank, FormId form);

  // The way in which all inputs are kept, where each is the whole of its buffer and all are of the same rows; else nothing.
  std::shared_ptr<const Rows> common_rows(std::span<const SymbolicParticipant> participants);
  // A rank that takes part for all of its class, or for itself alone.
  struct Party {
    std::uint32_t rank = 0;
    bool for_all = false;
  };
  void reduce(std::span<const SymbolicParticipant> participants, bool as_kept, Stretches& out);
  void take_in(const SymbolicParticipant& of, bool as_kept);
  void sum_up(const CollectiveCall& call, std::size_t world, Stretches& out);
  Stretch reduced(const CollectiveCall& call, std::size_t world, std::span<const Stretch> held);
  Stretch largest(std::span<const Stretch> held);
  void scatter(std::span<const SymbolicParticipant> participants, const PiecewiseBuffer& sums, const Leaves& leaves);
  bool takes_pace(Stretches& of_leader, const Stretches& of_other, std::int64_t places, bool first);
  void gather(std::span<const SymbolicParticipant> participants, std::uint32_t from, std::uint32_t to, Stretches& out);
  void write_to_all(std::span<const SymbolicParticipant> participants, const Stretches& whole);
  PaceId pace_of(std::int64_t elements);
  // Where in a buffer a rank that runs for others holds its share, which those have so much further on at each place, and what it took the place of.
  struct Share {
    std::uint32_t rank = 0;
    Slice slice;
    std::int64_t pace = 0;
    Stretches under;
  };
  void keep_share(std::uint32_t leader, Slice slice, std::int64_t pace);
  void take_shares(std::uint32_t rank, std::uint32_t leader);
  void forget_share(std::uint32_t rank, BufferId buffer);

  const Workload& workload_;
  const Timeline& timeline_;
  LinearForms forms_;
  std::vector<std::int64_t> parameter_begin_;  // where a parameter begins, all of them one after the other
  const RankClasses by_themselves_;
  const RankClasses& classes_;
  std::vector<std::vector<PiecewiseBuffer>> buffers_;  // by rank that leads
  std::vector<std::int64_t> paces_{0};                 // by number: elements
  std::vector<Share> shares_;                          // until their buffers are written as a whole
  bool parts_ = false;                                 // ranks of a class would come to hold other forms
  std::vector<FormId> before_;                         // by form, of the backward below; poison: not worked out
  std::uint32_t before_backward_ = 0;
  struct {
    std::uint32_t backward = 0;
    double scalar = 0;
    FormId form = LinearForms::poison;  // poison: none yet
  } last_deposit_;
  Stretches read_, other_, result_, one_;
  Stretches apart_;  // what leaders come to who may reduce for their classes
  std::vector<Party> parties_;
  std::vector<bool> took_in_all_;  // by rank that leads: one of the parties is its whole class
  std::vector<Stretches> inputs_;  // by party
  std::vector<ShownStretch> shown_;
  bool shown_at_one_pace_ = true;  // stretches of a piece: it is cut alike on every rank
  std::vector<WeightPiece> pieces_;
  std::vector<Said> said_;  // by form, as the rank said it that was asked last
};

}  // namespace gradledger
