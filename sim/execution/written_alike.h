// Whether another rank wrote what the leader of a class did, so that the leader may run for it. Everything must be the same but
//  * which elements of their parameters views show, and hold the weights of the start: each rank has its own;
//  * where in its buffer a rank receives its share of a reduce_scatter in place, and reads it from there;
//  * where in its buffer it puts its share of an all_gather in place;
//  * in which group of a family it calls an all_reduce: all of a class in one, or each in another.
//
// The share may lie elsewhere because nothing else of the buffer is touched until all of it is written again: the collective itself reads all of the input, so
// that everything before is ordered before it; then the share is read; then the whole buffer is written or given back. Elements of a share have the same history
// on every rank, and so have the others. Held to that in the order of the program, within what is written at once. What is gathered in place is the same the other
// way round: since its memory was taken, or written as a whole, nothing of the buffer is touched but the share, by copies into it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "sim/execution/group_families.h"
#include "sim/program/program.h"

namespace gradledger {

class WrittenAlike {
 public:
  // What the leader wrote behind a mark. It outlives this.
  WrittenAlike(const Program& leader, const Program::Mark& since);

  // The rank that wrote `other`, and the leader; places: between them. families: outlive the call.
  struct Between {
    std::uint32_t rank = 0, leader = 0;
    std::int64_t places = 0;
    const GroupFamilies* families = nullptr;
  };
  bool same(const Program& other, const Between& between);

  // An operation, or a collective, that lies so much further on in its buffer on the next place.
  struct Move {
    std::uint32_t op = no_index, collective = no_index;
    std::int64_t elements = 0;
    bool written = false;  // its target, or what the collective is given; else its source, or what the collective gives
  };
  // By what the ranks differ in that were found to be the same.
  std::vector<Move> moves() const;

 private:
  struct Share {
    Slice slice;  // the leader's
    bool open = true;
    bool known = false;
    std::int64_t elements = 0;  // to the next place
  };
  // An operation of the leader that receives a share, or reads some of it; of one to be gathered, that writes some of it or gathers.
  struct Place {
    std::uint32_t op = no_index, collective = no_index;
    std::size_t share = 0;
    bool written = false;
  };
  // What was put into a buffer since its memory was taken or written as a whole.
  struct Filled {
    std::vector<std::uint32_t> copies;
    bool by_copies = false;  // and by nothing else, nor read
  };

  void look_for_shares();
  void visit(std::uint32_t at);
  void look_for_gathered(std::uint32_t at);
  void note_filled(std::uint32_t at);
  void touch(Slice slice, std::uint32_t at, bool replaces, bool may_read_share);
  bool same_op(const Op& own, const Op& of_leader, std::size_t at);
  bool same_collective(const CollectiveCall& own, const CollectiveCall& of_leader, std::size_t at);
  bool same_group(const CollectiveCall& own, const CollectiveCall& of_leader, std::size_t at);
  bool lies_as_far(std::size_t share, std::uint64_t own, std::uint64_t of_leader);

  const Program& leader_;
  const Program::Mark since_;
  std::vector<Share> shares_;
  std::vector<std::size_t> open_;  // of them
  std::vector<Place> places_;
  std::vector<std::size_t> collectives_;  // of places_, in order
  std::vector<Filled> filled_;            // by buffer
  enum class Met : std::uint8_t { nobody, together, apart };
  std::vector<Met> met_;  // by collective since the mark: whether others of the class call it in the leader's group
  bool sound_ = true;     // they are nothing but read until their buffers are written as a whole
  // Of the comparison at hand.
  Between between_;
  std::vector<Share> tried_;
  std::vector<Met> met_then_;
  std::size_t next_op_ = 0;  // of places_
};

}  // namespace gradledger
