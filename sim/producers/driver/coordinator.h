// Where the collectives of a real framework's ranks meet. A value without sockets, threads or clock: it is told what ranks ask for and do, and says
// what to answer. What ranks are told does not depend on how their requests interleave, as long as settle() is called when nothing is left to read.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "sim/base/limits.h"
#include "sim/producers/driver/group_request.h"
#include "sim/trace/producer.h"

namespace gradledger::driver {

struct CoordinatorLimits {
  std::uint64_t bytes = limits::memory_bytes_default;  // of requests that are not answered yet, all ranks together
  std::uint32_t open_by_rank = 1u << 16;               // requests that are not answered yet
  std::uint32_t lines = 1u << 12;                      // groups, and pairs of ranks that send with one message tag
};

class Coordinator {
 public:
  // The sink outlives the coordinator. It is given a CollectiveRecord for each call of a kind that it knows, in the order of the rank's requests,
  // with `event` no_event before the first event. Data of a dtype that Dtype does not know is recorded as so many uint8. Every mismatch is
  // recorded, and the first deadlock where no mismatch came before: later ones follow from what was refused.
  Coordinator(std::uint32_t world_size, std::uint64_t model_numel, TraceSink& sink, CoordinatorLimits limits = {});

  // Preconditions: the rank is one of the world; fault_of(request) finds nothing.
  // A request whose id is not above those before, or that comes while the rank waits, or is one too many, is refused and takes no part.
  std::vector<GroupAnswer> ask(std::uint32_t rank, GroupRequest&& request);

  // The rank does nothing until the answer to `id` comes. Nothing happens where it is on its way already.
  std::vector<GroupAnswer> wait(std::uint32_t rank, std::uint64_t id);

  // Ranks are running at first, and after every answer to what they wait for.
  void running(std::uint32_t rank);
  void idle(std::uint32_t rank);  // has nothing left to do
  void gone(std::uint32_t rank);  // its process ended: it is given no answers any more

  // When all that ranks have sent was read. While one is running nothing happens. Else the lowest rank that waits for an asynchronous collective, and
  // was not told so of this one before, is told to go on; where there is none, what ranks wait for is refused. Where none waits, but
  // something that was asked for will never be done, that is refused.
  std::vector<GroupAnswer> settle();

  bool waits(std::uint32_t rank) const { return ranks_[rank].state == State::waiting; }

 private:
  enum class State : std::uint8_t { running, waiting, idle, gone };

  // Requests with one number on a line: of each slot there, or not yet.
  struct Meeting {
    std::vector<std::optional<GroupRequest>> calls;
    std::size_t arrived = 0;
    std::string broken;  // why whoever still comes is refused; empty: it can take place
  };

  // Where calls are matched in the order in which each rank makes them: a group, or a sender and a receiver with a message tag.
  struct Line {
    std::vector<std::uint32_t> ranks;  // by slot
    std::uint32_t number = 0;          // in records
    std::vector<std::uint64_t> asked;  // by slot
    std::uint64_t done = 0;            // meetings that are over; those from here on are in `open`
    std::deque<Meeting> open;
  };
  using LineKey = std::tuple<std::vector<std::uint32_t>, std::string, std::vector<std::uint32_t>, std::int64_t>;  // group, tag; sender and receiver, message tag

  struct Place {
    Line* line = nullptr;
    std::uint64_t sequence = 0;
    std::size_t slot = 0;
    bool told_to_go_on = false;
  };
  struct Rank {
    State state = State::running;
    std::uint64_t waits_for = 0;
    std::optional<std::uint64_t> last_id;
    std::int64_t last_event = -1;
    std::map<std::uint64_t, Place> open;  // by id
  };

  static LineKey key_of(std::uint32_t rank, const GroupRequest& request);
  std::optional<std::string> out_of_turn(std::uint32_t rank, const GroupRequest& request) const;
  Place place_of(std::uint32_t rank, const GroupRequest& request);
  Meeting& meeting_at(const Place& place) const { return place.line->open[place.sequence - place.line->done]; }
  void take_place(Line& line, Meeting& meeting, std::uint64_t sequence, std::vector<GroupAnswer>& out);
  void answer(std::uint32_t rank, GroupAnswer&& answer, std::vector<GroupAnswer>& out);
  void refuse_arrived(Line& line, Meeting& meeting, const std::string& type, const std::string& text, std::vector<GroupAnswer>& out);
  void forget_finished(Line& line);
  std::vector<GroupAnswer> refuse_stuck();

  void record(std::uint32_t rank, const GroupRequest& request, const Place& place);
  CollectiveRecord record_of(std::uint32_t rank, const GroupRequest& request, const Line& line, std::uint64_t sequence) const;
  std::string differing_calls(const char* what, const Line& line, const Meeting& meeting) const;
  void report_mismatch(const char* what, const Line& line, const Meeting& meeting, std::uint64_t sequence);
  const Place* stuck_at(const Rank& rank) const;
  void report_deadlock();
  std::string deadlock_text() const;
  std::string standstill_of(std::uint32_t rank) const;

  std::uint64_t model_numel_;
  TraceSink& sink_;
  CoordinatorLimits limits_;
  std::vector<Rank> ranks_;
  std::map<LineKey, Line> lines_;
  std::uint64_t bytes_held_ = 0;
  bool failed_ = false;  // a mismatch or a deadlock was recorded
};

// The number of a group in records: 0 for all ranks without a tag, else one that ranks and tag alone decide. It is the same whichever rank comes first.
std::uint32_t group_number(const std::vector<std::uint32_t>& group, const std::string& tag, std::uint32_t world_size);

}  // namespace gradledger::driver
