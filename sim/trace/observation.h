// Records of a run, handed to a sink as they happen. Views into live memory: a sink copies what it keeps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sim/numeric/dtype.h"
#include "sim/trace/memory_space.h"
#include "sim/trace/role.h"

namespace gradledger {

// A stretch of a snapshot: `numel` stored elements that are [parameter_offset, parameter_offset + numel) of a parameter.
// parameter < 0: alignment padding, which no parameter owns.
struct ObservedPiece {
  std::int32_t parameter = -1;
  std::uint64_t parameter_offset = 0;
  std::uint64_t numel = 0;
  Dtype dtype = Dtype::float32;
  const std::byte* data = nullptr;
  const double* error = nullptr;  // by element, what it may be off by: worked out from something that was rounded; null: as it was held
};

struct Observation {
  std::uint32_t rank = 0;
  std::uint32_t event = 0;
  bool at_end = true;       // after the event; false: inside it (the gradient that a step applies)
  std::string_view buffer;  // the framework's own name, with index: "averaged_gradients[0]"
  Role role = Role::scratch;
  double scale = 1.0;  // stored = true gradient x scale (loss scale in force)
  std::span<const ObservedPiece> pieces;
  MemorySpace space = MemorySpace::device;
};

enum class CollectiveKind : std::uint8_t { all_reduce, reduce, reduce_scatter, all_gather, broadcast };
// A framework may have several communicators of the same ranks. Collectives of one are a line, in which each rank issues them in order.
inline constexpr std::uint32_t communicators_max = 8;
constexpr std::size_t line_of(std::uint32_t group, std::uint32_t communicator) { return std::size_t{group} * communicators_max + communicator; }

// premultiplied_sum: of what each rank has times a factor, as NCCL's PreMulSum. other: a product, a minimum, of bits; in real frameworks alone.
enum class ReduceOp : std::uint8_t { sum, avg, max, premultiplied_sum, other };
// control: what ranks tell each other about the reduction itself, as which parameters were used.
enum class Purpose : std::uint8_t { gradient, norm, overflow, parameter, user, control };

std::string_view name_of(CollectiveKind kind);
std::string_view name_of(ReduceOp op);
std::string_view name_of(Purpose purpose);

// One collective as one rank issued it. numel is the payload: the input's elements (all_gather: the input's too).
struct CollectiveRecord {
  std::uint32_t rank = 0;
  std::uint32_t event = 0;
  std::uint32_t group = 0;
  std::uint32_t sequence = 0;  // number in the line
  CollectiveKind kind = CollectiveKind::all_reduce;
  ReduceOp op = ReduceOp::sum;
  Purpose purpose = Purpose::gradient;
  Dtype dtype = Dtype::float32;
  std::uint64_t numel = 0;
  std::uint32_t root = 0;
  double factor = 1;               // of a premultiplied_sum
  std::string in_words;            // of a real framework: what it called and where, also what the fields have no values for. Empty: the fields say all
  std::uint32_t communicator = 0;  // of the group

  std::size_t line() const { return line_of(group, communicator); }
  std::string text() const;  // "all_reduce sum of 64 bf16"
};

// What one rank handed to a reduction, and what it got back.
struct ReductionRecord {
  CollectiveRecord call;
  std::span<const std::byte> input, output;
};

// bytes is what the framework would hold; what the simulator holds may be less (a bucket larger than the model).
struct MemoryRecord {
  std::uint32_t rank = 0;
  std::uint32_t event = 0;
  bool allocated = true;
  std::string_view buffer;
  MemorySpace space = MemorySpace::device;
  std::uint64_t bytes = 0;
  bool at_start = false;    // when the engine was made, before the first event
  bool again = false;       // the run allocated this buffer before
  std::uint32_t order = 0;  // rises in the order in which the rank's host allocates and frees, whatever its streams are at
};

// Unwritten or released memory that reached a snapshot, a decision or an update.
struct UnwrittenRecord {
  std::uint32_t rank = 0;
  std::uint32_t event = 0;
  std::string buffer;
  std::uint64_t begin = 0, end = 0;  // elements
  std::string reader;                // what read it
  bool released = false;             // freed rather than never written
};

// The modelled framework raised: the rank's script ends here.
struct EngineErrorRecord {
  std::uint32_t rank = 0;
  std::uint32_t event = 0;
  std::string type;  // "TypeError"
  std::string message;
};

// What a rank waits for when nothing can move any more.
struct WaitingRank {
  std::uint32_t rank = 0;
  std::uint32_t event = 0;                     // waits since this event
  std::optional<CollectiveRecord> collective;  // absent: the rank ended (script done, or raised), or waits for no collective
  bool finished = false;
  std::optional<std::uint32_t> sender = {};  // the rank that has yet to send it something
};

struct DeadlockRecord {
  std::vector<WaitingRank> ranks;
};

// Calls with one group and sequence number that do not fit each other.
struct MismatchRecord {
  std::string what;  // "kind", "size", "dtype", "root", "operator"
  std::vector<CollectiveRecord> calls;
};

inline constexpr std::uint32_t no_event = 0xFFFFFFFFu;  // before the first one

// One of two operations that touch the same elements.
struct RacingOperation {
  std::string operation;  // "copy", "all_reduce (gradient)"
  std::string stream;
  std::uint32_t event = 0;   // that it belongs to; no_event: it came before the first
  std::uint32_t number = 0;  // in the rank's program: the order in which the host enqueued
  std::string site = {};     // of a real framework: file, line and function of its source

  bool operator==(const RacingOperation&) const = default;
};

// Two accesses to the same elements, at least one of them a write, which nothing orders: the second's stream does not wait for the
// first's. Found from the program, whatever the schedule did.
struct RaceRecord {
  std::uint32_t rank = 0;
  std::uint32_t event = 0;  // of the second
  std::string buffer;
  std::uint64_t begin = 0, end = 0;  // elements of the buffer, or bytes of it
  RacingOperation first, second;
  bool in_bytes = false;  // of a real framework
};

// What a step() decided or reported. A producer that cannot tell one does not give it: what hangs on it is then not judged.
enum class StepFact : std::uint8_t {
  skipped,        // 0 or 1: it found an overflow and leaves everything as it was
  updated,        // 0 or 1: the base optimizer ran on the window's gradient
  loss_scale,     // in force from here on
  gradient_norm,  // that it reports, in true units
  clipping_norm,  // that it clips by, in true units
  loop_norm,      // that the loop itself clips by, of what it finds in param.grad; no fact of a step
};
inline constexpr std::size_t step_facts = 6;
std::string_view name_of(StepFact fact);

struct StepRecord {
  std::uint32_t rank = 0;
  std::uint32_t event = 0;
  StepFact fact = StepFact::skipped;
  double value = 0;
};

}  // namespace gradledger
