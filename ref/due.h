// Whether a snapshot owes anything, and since when. Decided here from what a buffer is, from the script and from what was seen before: the
// engine says what a buffer is, and not when it may be held to it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ref/finding.h"
#include "sim/base/hash_index.h"
#include "sim/scenario/timeline.h"
#include "sim/trace/producer.h"

namespace gradledger::ref {

// Why a snapshot is not judged.
enum class NotDue : std::uint8_t {
  scratch,      // it holds no sum of gradients that anybody promises
  unchanged,    // it was judged as it is, and nothing was written since
  left_over,    // of an earlier window, or of before the window's first reduction
  interrupted,  // the user's exception, or a backward's: what is due is due at the ranks' next common event
  touched,      // the loop changed it itself: what is due is due in the applied gradient
  in_parts,     // the loop has parts of the model reduce on their own: likewise
  apart,        // ranks disagree on whether a backward of the window is reduced: likewise
  mixed,        // own and averaged gradients share the buffer, which lasts until the loop clears it: likewise
  zeros,        // an optimizer inside a backward was given none of what is due: that is due where it is given the gradient
};
inline constexpr std::size_t reasons_not_due = 9;
std::string_view name_of(NotDue reason);

struct Due {
  std::optional<NotDue> not_due;
  std::uint32_t after = never;  // local sums: contributions after this reduction; never: of the whole window
};

// A snapshot without its numbers, however a pass shows it.
struct Shown {
  std::uint32_t rank = 0, event = 0;
  bool at_end = true;
  std::string_view buffer;
  Role role = Role::scratch;
  std::span<const ElementRange> elements;                // in its order
  std::span<const std::span<const std::byte>> contents;  // bytes that are equal where what is held is
  bool zeros = false;                                    // a gradient is due, and zeros are there
};

// std::equal looks at one std::byte at a time.
inline bool equal_bytes(std::span<const std::byte> a, std::span<const std::byte> b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size()) == 0);
}

// Follows the snapshots of one pass. Precondition: it sees every snapshot of a rank and the end of each of its events, in order.
class DueTracker {
 public:
  explicit DueTracker(const Timeline& timeline) : timeline_(timeline), ranks_(timeline.world_size) {}

  Due of(const Shown& shown);
  Due of(const Observation& observation);
  void raised(std::uint32_t rank, std::uint32_t event) { ranks_[rank].raised = event; }
  void event_done(std::uint32_t rank, std::uint32_t event);

  struct Buffer {
    std::string name;
    std::uint32_t appeared = never, last = never;  // events
    Role role = Role::scratch;                     // as what it was shown last
    std::vector<std::byte> bytes;                  // reduced gradients: the contents
    bool judged = true;                            // as they are
    std::size_t followed_by = 0;                   // the buffer that was asked for after it, most likely again
  };
  struct Rank {
    std::uint32_t last_event = never;             // but for those that hid what they left
    std::uint32_t raised = never, shown = never;  // events: the last with an exception, and with a snapshot
    std::uint32_t hidden_since = never;           // the first of the events behind last_event
    std::vector<Buffer> buffers;
    HashIndex by_name;
    std::size_t last = 0;  // buffer that was asked for: they are shown in the same order after every event
  };
  // What it saw so far: another tracker goes on with it where the pass does.
  using Seen = std::vector<Rank>;
  Seen& seen() { return ranks_; }
  // What it knows of a buffer; nothing yet where it never asked.
  Buffer& known(std::uint32_t rank, std::string_view name) { return known(ranks_[rank], name); }

 private:
  Buffer& known(Rank& rank, std::string_view name);
  static bool changes(Buffer& buffer, std::span<const std::span<const std::byte>> contents);

  const Timeline& timeline_;
  Seen ranks_;
};

}  // namespace gradledger::ref
