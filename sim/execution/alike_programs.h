// Ranks whose engines wrote the same program, but for where in its buffers each has its own part: what follows from the program alone is worked out once
// for all of them.
//
// Proven operation by operation, as the engines of both ranks wrote them: a rank follows the first one that began alike for as long as it does the same.
// Where it no longer does it has a check of its own, which goes on from the last operation that was the same, and others that part there may follow it in turn:
// the parts of the first and of the last rank of a group lie at an end of a buffer, and those of all others between two neighbours.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "sim/base/hash.h"
#include "sim/execution/happens_before.h"
#include "sim/execution/rank.h"

namespace gradledger {

class AlikePrograms {
 public:
  explicit AlikePrograms(const std::vector<Rank>& ranks) : ranks_(ranks), of_rank_(ranks.size()) {
    for (std::uint32_t r = 0; r < ranks.size(); ++r) of_rank_[r].leader = r;
  }

  // The rank has a program, of which nothing ran. by_itself: it follows nobody. Precondition: ranks begin in order.
  void begin(std::uint32_t rank, bool by_itself = false);
  // Its engine has written more. kept: others may come to stand as it does.
  void wrote(std::uint32_t rank, bool kept = false);
  // A rank that did not begin has done all that the other one did, which follows nobody, or all but what that one wrote last.
  void stand_as(std::uint32_t rank, std::uint32_t other);
  void back_by_one(std::uint32_t rank);
  // It follows nobody from now on. Precondition: it stands as one does that leads.
  void stand_by_itself(std::uint32_t rank);
  // Compares what can be compared. ended: nobody writes any more, and whoever is ahead of the rank that it follows goes on by itself.
  void catch_up(bool ended);

  // Its operations from here on are still asked for.
  std::uint32_t needed_from(std::uint32_t rank) const { return follows(rank) ? of_rank_[rank].compared : no_index; }

  // The rank that this one does the same as; itself, if none.
  std::uint32_t leader(std::uint32_t rank) const { return of_rank_[rank].leader; }
  bool follows(std::uint32_t rank) const { return leader(rank) != rank; }
  // All that it wrote is compared.
  bool is_compared(std::uint32_t rank) const { return of_rank_[rank].compared == ranks_[rank].program.ops.size(); }
  // A word for what its slices differ in from the leader's since this was asked for last.
  std::uint64_t take_differences(std::uint32_t rank);

  bool has_races() const;
  const std::vector<RaceRecord>& races(std::uint32_t rank) const;
  // Taken by what grows with a rank's program.
  std::uint64_t bytes(std::uint32_t rank) const { return of_rank_[rank].check ? of_rank_[rank].check->bytes() : 0; }

 private:
  static constexpr std::size_t leaders_tried = 4;  // those that came last

  struct Access {
    Slice slice;
    bool writes = false;
  };
  // What a leader wrote at once, as long as somebody may still be compared with it.
  struct Written {
    std::uint32_t begin = 0;
    std::vector<Op> ops;
    std::vector<Access> accesses;
    std::vector<std::uint32_t> first_access;  // by operation, and one more
    std::vector<StreamCheck::Met> met;        // by access
    StreamCheck::Mark before;
    std::uint32_t buffers = 0;  // that were declared by its end
    bool races = false;
  };
  struct OfRank {
    std::uint32_t leader = 0;
    std::uint32_t compared = 0;  // operations
    // Of a leader, and of a rank by itself.
    std::unique_ptr<StreamCheck> check;
    std::vector<std::uint32_t> followers;
    std::deque<Written> log;
    std::uint64_t log_begin = 0;           // number of its first entry
    std::vector<std::uint32_t> parted;     // ranks that followed it
    std::uint32_t parted_from = no_index;  // the rank that it followed itself, if any
    std::uint64_t parted_at = 0;           // the entry of that rank's log that it did not do alike
    // Of a follower.
    std::size_t place = 0;                      // among the followers
    std::uint64_t next = 0;                     // entry of the log to be compared with
    std::vector<StreamCheck::Extents> extents;  // by buffer: none where it is cut as the leader's
    PairHash differences;
    std::uint64_t slices = 0;  // compared since they were asked for
  };

  void record(std::uint32_t rank, bool kept);
  void catch_up(std::uint32_t rank, bool ended);
  bool same(std::uint32_t rank, const Written& written);
  bool meets_the_same(std::uint32_t rank, const Written& written);
  bool meets(std::uint32_t rank, Slice slice, const Written& written, std::uint32_t access);
  static StretchRange cut(StreamCheck::Extents& all, const Access& access);
  void cut_as_the_leader(std::uint32_t rank, BufferId buffer, const Written& written, std::uint32_t access);
  void compare_extents(std::uint32_t rank, const StreamCheck::Mark& with, const StreamCheck::Mark& before);
  bool same_buffers(std::uint32_t rank, std::uint32_t leader, std::uint32_t count);
  bool same_operation(const Op& own, const Op& of_leader, std::uint32_t rank, const Program& leader);
  bool same_slice(const Slice& own, const Slice& of_leader, std::uint32_t r) {
    OfRank& rank = of_rank_[r];
    ++rank.slices;
    return own == of_leader || moved(own, of_leader, rank);
  }
  static bool moved(Slice own, Slice of_leader, OfRank& rank);
  void part(std::uint32_t rank);
  bool joins(std::uint32_t rank, std::uint32_t leader);
  void drop(std::uint32_t follower);
  bool may_be_joined(std::uint32_t rank) const;
  void forget(std::uint32_t leader);

  const std::vector<Rank>& ranks_;
  std::vector<OfRank> of_rank_;
  std::vector<std::uint32_t> leaders_;
  // Of the comparison that is under way: buffers as they were before, each once.
  std::vector<std::pair<BufferId, StreamCheck::Extents>> before_;
  std::vector<std::uint64_t> kept_in_;  // by buffer: the comparison that keeps it, by number
  std::uint64_t comparison_ = 0;
};

}  // namespace gradledger
