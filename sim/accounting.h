// What a run holds and sends: bytes by rank, window, phase and memory space, split by what they are for; collectives with their payloads.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "sim/engine/buffers.h"
#include "sim/trace/kept_round.h"
#include "sim/trace/producer.h"
#include "sim/trace/repeated_memory.h"

namespace gradledger {

// Parts of a window. A window's events may come in any order; a phase is all of a kind.
enum class Phase : std::uint8_t {
  accumulate,  // forwards, and backwards that are no boundary or whose reduction a block holds back
  boundary,    // boundary backwards, and the flush at the end of a coalesced block
  step,
  between,  // whatever else a script does
};
inline constexpr std::size_t phase_count = 4;
std::string_view name_of(Phase phase);

// Sums of purposes come after the purposes themselves.
inline constexpr std::size_t gradient_memory = buffer_purposes;  // gradients, buckets and accumulators
inline constexpr std::size_t all_memory = buffer_purposes + 1;
inline constexpr std::size_t memory_kinds = buffer_purposes + 2;
std::string_view memory_kind_name(std::size_t kind);
std::optional<std::size_t> memory_kind_named(std::string_view name);

using MemoryBytes = std::array<std::uint64_t, memory_kinds>;
inline constexpr std::size_t space_count = 2;

struct SpaceAccount {
  MemoryBytes resident{};  // after the phase's last event
  MemoryBytes peak{};      // the most during its events, each kind for itself

  bool operator==(const SpaceAccount&) const = default;
};

struct CollectiveAccount {
  std::uint64_t count = 0;
  std::uint64_t elements = 0;  // payload: of the inputs
  std::uint64_t bytes = 0;

  bool operator==(const CollectiveAccount&) const = default;
};

using CollectiveKey = std::tuple<Purpose, CollectiveKind, std::uint32_t /*group*/, Dtype>;

struct PhaseAccount {
  bool happened = false;
  std::array<SpaceAccount, space_count> space;
  std::map<CollectiveKey, CollectiveAccount> collectives;

  CollectiveAccount total(Purpose purpose) const;
  bool operator==(const PhaseAccount&) const = default;
};

struct WindowAccount {
  std::array<PhaseAccount, phase_count> phases;

  const PhaseAccount& of(Phase phase) const { return phases[static_cast<std::size_t>(phase)]; }
  CollectiveAccount total(Purpose purpose) const;
  bool operator==(const WindowAccount&) const = default;
};

struct RankAccount {
  std::array<MemoryBytes, space_count> start{};  // after the engine was made
  std::vector<WindowAccount> windows;

  bool operator==(const RankAccount&) const = default;
};

struct Accounting {
  std::vector<RankAccount> ranks;
  std::uint32_t windows_closed = 0;    // by a step; one more may be open
  std::optional<std::string> stopped;  // why a rank did not reach its end

  bool operator==(const Accounting&) const = default;
};

// Collects one run. Bytes are counted in the order in which a rank's host allocates and frees, as a caching allocator counts them, so that
// they depend on no schedule. A round that repeats allocates and frees what the one before it did, and so needs no look.
class AccountingSink final : public TraceSink, public NeedsMemoryOfRounds, public TakesRounds {
 public:
  // Both outlive the sink.
  AccountingSink(const Scenario& scenario, const Timeline& timeline);

  void collective(const CollectiveRecord& record) override;
  void memory(const MemoryRecord& record) override;
  void event_done(std::uint32_t rank, std::uint32_t event) override { reached_[rank] = std::max(reached_[rank], event + 1); }
  void engine_error(const EngineErrorRecord& record) override;
  void deadlock(const DeadlockRecord& record) override;
  void mismatch(const MismatchRecord& record) override;
  void round_again(KeptRound& round) override;

  Accounting take();

 private:
  struct Change {
    std::uint32_t order = 0, event = 0;
    bool at_start = false, allocated = true;
    BufferPurpose purpose{};
    MemorySpace space{};
    std::uint64_t bytes = 0;
  };

  using Sent = std::map<CollectiveKey, CollectiveAccount>;

  PhaseAccount& phase_at(std::uint32_t rank, std::uint32_t event);
  BufferPurpose purpose_of(std::string_view buffer);
  void account(std::uint32_t rank, std::vector<Change>& changes);

  const Timeline& timeline_;
  const std::vector<Phase> phases_;  // by event
  BufferPurposes purposes_;
  std::map<std::string, BufferPurpose, std::less<>> known_;
  std::vector<std::vector<Change>> changes_;                       // by rank
  std::vector<std::uint32_t> reached_;                             // by rank: events done
  std::vector<std::uint32_t> repeats_;                             // by event of a round that nobody ran: the event that was run; no_index of others
  std::vector<bool> is_repeated_;                                  // by event: such a one
  std::map<std::pair<std::uint32_t, std::uint32_t>, Sent> round_;  // that repeats: by rank and event of the one that was run
  std::uint32_t stopped_rank_ = 0;                                 // that raised
  Accounting out_;
};

// The run that an accounting is of, for a sink that takes rounds: dry; where a script repeats rounds on weights, which proves that they repeat and runs a few.
RunOptions accounting_run(const Scenario& scenario, const Timeline& timeline);

// By event.
std::vector<Phase> phases_of(const Timeline& timeline);

// Bytes that an accounting of the scenario takes, from above, without its programs.
std::uint64_t accounting_bytes(const Timeline& timeline);

}  // namespace gradledger
