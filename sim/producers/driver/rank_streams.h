// What a rank of a real framework did on its streams, as its messages tell it (docs/driver-protocol.md, "Streams"), held against the order that
// its waits make. Memory is told apart by allocation, and freed memory is given out again as the caching allocator of CUDA does it: to the stream
// that it was allocated on, at any time, unless it was recorded for others too (docs/streams.md).
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "sim/base/result.h"
#include "sim/execution/stream_order.h"
#include "sim/trace/observation.h"

namespace gradledger::driver {

inline constexpr std::uint32_t rank_streams_max = 256;
inline constexpr std::uint32_t stream_texts_max = 1u << 16;
inline constexpr std::uint32_t stream_text_length_max = 1024;
inline constexpr std::uint32_t stream_events_max = 1u << 16;
inline constexpr std::uint32_t stream_operations_max = 1u << 22;   // of a rank in a run; allocations count
inline constexpr std::uint32_t stream_stretches_max = 1u << 16;    // of memory that was accessed apart from what is beside it
inline constexpr std::uint32_t operation_ranges_max = 1u << 14;    // that one operation reads or writes
inline constexpr std::uint32_t allocation_bytes_max = 0xFFFFFFFF;  // of one allocation

class RankStreams {
 public:
  explicit RankStreams(std::uint32_t rank) : rank_(rank), order_(1) {}

  // A "streams" message of the time up to the end of `event`; no_event: before the first. Errors name the key or entry.
  std::optional<InputError> take(const nlohmann::json& message, std::uint32_t event);

  // One for each pair of call sites, the first time that it shows; at most limits::races_reported_max.
  std::vector<RaceRecord> races() const;
  std::size_t operations() const { return operations_.size(); }  // allocations count
  std::size_t streams() const { return stream_names_.size() - 1; }

 private:
  using Clock = std::vector<std::uint32_t>;
  using Order = StreamOrder<Clock>;
  struct Allocation {
    std::uint32_t bytes = 0;
    std::optional<std::uint32_t> stream;  // none: it was there before the rank was watched
    std::uint32_t site = 0, freed_at = 0, name = 0;
    bool live = true;
    std::set<std::uint32_t> recorded;  // streams, by record_stream
    Clock waited;                      // once it is freed: what its next owner is sure to come after
    Order::History touched;
  };
  struct Operation {
    std::uint32_t name = 0, site = 0, stream = 0, event = 0;
    bool reuses = false;  // it is given memory that was freed
  };
  struct Race {
    std::uint32_t buffer = 0;
    std::uint64_t begin = 0, end = 0;
    std::uint32_t first = 0, second = 0;  // operations by number
  };
  using Problem = std::optional<InputError>;

  Problem add_texts(const nlohmann::json& texts);
  Problem add_streams(const nlohmann::json& streams);
  Problem take_entry(const nlohmann::json& entry);
  Problem run(const nlohmann::json& entry);
  Problem allocate(const nlohmann::json& entry);
  Problem free(const nlohmann::json& entry);
  Problem keep(const nlohmann::json& entry);
  Problem record(const nlohmann::json& entry);
  Problem wait(const nlohmann::json& entry);
  Problem join(const nlohmann::json& entry);
  Problem synchronize(const nlohmann::json& entry);
  Problem name(const nlohmann::json& entry);
  Problem access(const nlohmann::json& ranges, const std::string& where, bool writes);
  Problem begin_operation(Operation operation);

  // Streams of the protocol count from 0, and -1 is the host; those of the order count from 1.
  Problem read_stream(const nlohmann::json& value, std::uint32_t place, bool host_too, std::uint32_t& out) const;
  Problem read_buffer(const nlohmann::json& value, std::uint32_t place, std::uint32_t& out) const;
  Problem read_text(const nlohmann::json& value, std::uint32_t place, std::uint32_t& out) const;

  void report(std::uint32_t buffer, const Order::Stretch& stretch, std::uint32_t earlier);
  RacingOperation describe(std::uint32_t number, const Allocation& of) const;
  std::string buffer_text(const Allocation& of) const;

  std::uint32_t rank_;
  std::uint32_t event_ = no_event;
  Order order_;
  std::vector<std::string> texts_{""};                         // by number; the first says nothing
  std::vector<std::uint32_t> stream_names_{0};                 // by number in the order
  std::vector<Operation> operations_;                          // by number
  std::vector<Allocation> allocations_;                        // by number of the buffer
  std::map<std::uint32_t, Clock> recorded_;                    // by event of the protocol
  std::map<std::uint32_t, std::vector<std::uint32_t>> freed_;  // by stream: what its next allocation may get again
  std::uint64_t stretches_ = 0;
  std::vector<Race> races_;
  std::set<std::array<std::uint32_t, 6>> known_;  // pairs: name, site and stream of both
};

}  // namespace gradledger::driver
