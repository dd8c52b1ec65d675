// What every rank did and held in each event, as the primary pass shows it. What ranks and events have in common is held once.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "report/report.h"
#include "sim/base/numbered_names.h"
#include "sim/trace/kept_round.h"
#include "sim/trace/producer.h"
#include "sim/trace/repeated_memory.h"

namespace gradledger::verbs {

class EventWatch final : public TraceSink, public NeedsNoRepeatedMemory, public TakesRounds {
 public:
  // Ranks of an event, ascending, with the same record.
  struct Alike {
    std::vector<std::uint32_t> ranks;
    std::shared_ptr<const report::EventLine::Record> record;
  };

  void observe(const Observation& observation) override;
  void weights(const WeightObservation& observation) override;
  void collective(const CollectiveRecord& record) override;
  void step_fact(const StepRecord& record) override;
  void event_done(std::uint32_t rank, std::uint32_t event) override;
  void round_again(KeptRound& round) override;

  // By event; of an event in the order of their first ranks. Which buffer is out of balance is left to whoever has the verdict.
  std::map<std::uint32_t, std::vector<Alike>> lines();

 private:
  enum class Kind : std::uint8_t { buffer, collective, fact };
  struct Item {
    Kind kind = Kind::buffer;
    std::uint8_t detail = 0;  // role; fact
    bool at_end = true;
    bool has_value = false;
    std::uint32_t name = 0;  // of the buffer, of the collective's text
    double value = 0;        // norm; of the fact

    bool operator==(const Item& other) const;
  };
  using Items = std::vector<Item>;
  // Of a rank in an event that may go on.
  struct Open {
    std::uint32_t event = 0;
    Items items;
  };
  using CallKey = std::tuple<CollectiveKind, ReduceOp, Purpose, Dtype, std::uint64_t, std::uint32_t, std::uint32_t>;

  Items& at(std::uint32_t rank, std::uint32_t event);
  std::uint32_t number_of(const CollectiveRecord& record);
  std::uint32_t number_of(Items items);
  std::uint32_t& closed(std::uint32_t rank, std::uint32_t event);
  void close(std::uint32_t rank, std::size_t place);
  std::shared_ptr<const report::EventLine::Record> record_of(const Items& items) const;

  NumberedNames buffers_, calls_;
  std::map<CallKey, std::uint32_t> known_calls_;
  std::vector<std::vector<Open>> open_;                          // by rank
  std::vector<std::vector<std::uint32_t>> closed_;               // by rank and event: the number of its items, and one more; 0: none
  std::vector<Items> items_;                                     // by number
  std::map<std::uint64_t, std::vector<std::uint32_t>> numbers_;  // by hash
  std::uint32_t last_ = 0;                                       // number that was asked for last
  std::vector<std::uint32_t> events_of_round_;                   // that repeats
};

}  // namespace gradledger::verbs
