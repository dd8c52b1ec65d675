// Buffers of a rank that are judged alike in every repeat of a round, and pieces of a buffer that are: all that a judgement depends on is the same in
// them, but for how many elements there are. One of them is then judged for all.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "ref/due.h"
#include "sim/trace/kept_round.h"

namespace gradledger::ref {

class AlikeInRound {
 public:
  static constexpr std::uint32_t nothing = 0xFFFFFFFFu;

  // A buffer and its snapshots of the round, in order.
  struct Thing {
    std::uint32_t rank = 0, first = 0, count = 0;
  };
  struct Group {
    std::vector<std::uint32_t> things;
    std::vector<std::uint32_t> pieces;  // of each snapshot of the first thing, one of each kind: they are judged for all
    std::vector<std::uint64_t> others;  // by snapshot of a thing: elements of all other pieces
    bool apart = false;                 // each is judged by itself, and has been so far
    // What the tracker remembers: contents of this snapshot, as of a round.
    std::uint32_t remembered = nothing, of_round = 0;
  };
  // What is done for a rank, in order: a snapshot of a group is looked at, or an event ends (group: nothing).
  struct Act {
    std::uint32_t rank = 0, group = nothing;
    std::uint32_t number = 0;  // of the group's snapshots; else the event
  };

  // Precondition: the round is the last thing that the tracker saw. alike: by parameter, the first of which the same is due.
  AlikeInRound(const KeptRound& round, std::span<const std::uint32_t> alike, DueTracker& tracker);

  const std::vector<Act>& acts() const { return acts_; }
  std::vector<Group>& groups() { return groups_; }
  const Thing& thing(std::uint32_t number) const { return things_[number]; }
  std::uint32_t snapshot(std::uint32_t thing, std::uint32_t number) const { return snapshots_[things_[thing].first + number]; }

 private:
  // What else a thing must have in common with another one.
  struct Known {
    std::uint32_t appeared = never, last = never, remembered = nothing;
    Role role = Role::scratch;
    bool lone = false;  // it is like no other
    bool operator==(const Known&) const = default;
  };

  void find_things(const std::vector<const KeptRound::Entry*>& entries);
  Known known_of(const Thing& thing, DueTracker& tracker) const;
  void group(std::size_t first_thing, DueTracker& tracker);
  void find_kinds(Group& group) const;
  bool alike(const Thing& a, const Thing& b) const;
  bool snapshots_alike(std::uint32_t a, std::uint32_t b) const;
  bool pieces_alike(std::uint32_t a, std::size_t i, std::uint32_t b, std::size_t j) const;

  const KeptRound& round_;
  const std::span<const std::uint32_t> alike_;
  std::vector<Thing> things_;
  std::vector<std::uint32_t> snapshots_;  // of one thing after the other
  std::vector<Group> groups_;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> judged_as_;  // by snapshot of a group's first thing: the group, and its number there
  std::vector<Act> acts_;
};

// What a tracker compares of weights: equal where a buffer holds the same.
void contents_of(std::span<const WeightPiece> pieces, std::vector<std::uint64_t>& out);

}  // namespace gradledger::ref
