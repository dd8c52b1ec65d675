// Two runs of one scenario, held against each other bit for bit, whoever produced them.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sim/trace/producer.h"

namespace gradledger {

// Hashes of everything that a run reports, by event and rank; of one event, if asked for, the snapshots themselves.
class Transcript final : public TraceSink {
 public:
  using Place = std::pair<std::uint32_t, std::uint32_t>;  // event, rank

  explicit Transcript(std::optional<Place> kept = std::nullopt) : kept_(kept) {}

  // What one record was, in words, and the hash of all of it.
  struct Entry {
    std::string what;  // "snapshot averaged_gradients[0]"
    std::uint64_t hash = 0;
    std::vector<std::byte> bytes;       // kept snapshots: its elements, padding left out
    std::vector<std::uint32_t> widths;  // bytes of each element
    bool operator==(const Entry& other) const { return what == other.what && hash == other.hash; }
  };

  const std::map<Place, std::vector<Entry>>& entries() const { return entries_; }

  void observe(const Observation& observation) override;
  void collective(const CollectiveRecord& record) override;
  void memory(const MemoryRecord& record) override;
  void step_fact(const StepRecord& record) override;
  void event_done(std::uint32_t rank, std::uint32_t event) override;
  void unwritten(const UnwrittenRecord& record) override;
  void engine_error(const EngineErrorRecord& record) override;
  void deadlock(const DeadlockRecord& record) override;
  void mismatch(const MismatchRecord& record) override;

 private:
  Entry& add(std::uint32_t event, std::uint32_t rank, std::string what);

  std::optional<Place> kept_;
  std::map<Place, std::vector<Entry>> entries_;
};

// Where two runs part.
struct TraceDifference {
  std::uint32_t event = 0, rank = 0;
  std::string what;                    // the record that differs, or that one run alone has
  std::uint64_t elements = 0, of = 0;  // of a snapshot: how many differ
  std::uint64_t first = 0;             // index of the first
  std::string one, other;              // its bits, or what the runs have
};

// The first event, and in it the first rank, whose records differ; none where all bits are equal. Races are not compared: they are the program's.
std::optional<TraceDifference> first_difference(const Transcript& one, const Transcript& other);

}  // namespace gradledger
