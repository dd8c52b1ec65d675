#include "sim/trace/transcript.h"

#include <algorithm>
#include <bit>

#include "sim/base/hash.h"

namespace gradledger {
namespace {

// NaNs of fp64 carry the processor's payload; all others are canonical.
std::uint64_t bits_of(double value) { return value != value ? 0x7FF8000000000000ull : std::bit_cast<std::uint64_t>(value); }

std::uint64_t hash_of(std::string_view text) {
  TraceHash hash;
  hash.add_bytes(std::as_bytes(std::span(text.data(), text.size())));
  return hash.value();
}

std::string hex(const std::byte* bytes, std::uint32_t width) {
  std::string text = "0x";
  for (std::uint32_t i = width; i-- > 0;)
    for (unsigned shift : {4u, 0u}) text += "0123456789abcdef"[std::to_integer<unsigned>(bytes[i]) >> shift & 15];
  return text;
}

}  // namespace

Transcript::Entry& Transcript::add(std::uint32_t event, std::uint32_t rank, std::string what) { return entries_[{event, rank}].emplace_back(Entry{std::move(what), 0, {}, {}}); }

void Transcript::observe(const Observation& o) {
  Entry& entry = add(o.event, o.rank, "snapshot " + std::string(o.buffer) + (o.at_end ? "" : " inside the event"));
  const bool keeps = kept_ == Place{o.event, o.rank};
  TraceHash hash;
  hash.add(static_cast<std::uint64_t>(o.role));
  hash.add(bits_of(o.scale));
  for (const ObservedPiece& piece : o.pieces) {
    hash.add(static_cast<std::uint32_t>(piece.parameter));
    hash.add(piece.parameter_offset);
    hash.add((std::uint64_t{piece.numel} << 8) | static_cast<std::uint64_t>(piece.dtype));
    if (piece.parameter < 0) continue;  // padding is nobody's
    const std::size_t bytes = piece.numel * std::size_t{size_of(piece.dtype)};
    hash.add_bytes({piece.data, bytes});
    if (!keeps) continue;
    entry.bytes.insert(entry.bytes.end(), piece.data, piece.data + bytes);
    entry.widths.insert(entry.widths.end(), piece.numel, size_of(piece.dtype));
  }
  entry.hash = hash.value();
}

void Transcript::collective(const CollectiveRecord& r) {
  add(r.event, r.rank, "collective " + r.text()).hash = hash_keys({r.group | std::uint64_t{r.communicator} << 32, r.sequence, static_cast<std::uint64_t>(r.purpose), r.root});
}

void Transcript::memory(const MemoryRecord& r) {
  add(r.event, r.rank, (r.allocated ? "allocation of " : "release of ") + std::string(r.buffer)).hash = hash_keys({r.bytes, static_cast<std::uint64_t>(r.space), r.at_start});
}

void Transcript::step_fact(const StepRecord& r) { add(r.event, r.rank, "step fact " + std::string(name_of(r.fact))).hash = bits_of(r.value); }
void Transcript::event_done(std::uint32_t rank, std::uint32_t event) { add(event, rank, "end of the event"); }
void Transcript::unwritten(const UnwrittenRecord& r) {
  add(r.event, r.rank, "unwritten memory of " + r.buffer + " read by " + r.reader).hash = hash_keys({r.begin, r.end, r.released});
}
void Transcript::engine_error(const EngineErrorRecord& r) { add(r.event, r.rank, r.type + ": " + r.message).hash = hash_of(r.message); }

void Transcript::deadlock(const DeadlockRecord& r) {
  for (const WaitingRank& waiting : r.ranks)
    add(waiting.event, waiting.rank,
        waiting.collective ? "deadlock in " + waiting.collective->text()
        : waiting.sender   ? "deadlock, receiving"
                           : "deadlock")
        .hash = hash_keys({waiting.collective ? waiting.collective->sequence : 0, waiting.finished});
}

void Transcript::mismatch(const MismatchRecord& r) {
  for (const CollectiveRecord& call : r.calls) add(call.event, call.rank, "mismatch in " + r.what + " at " + call.text()).hash = call.sequence;
}

namespace {

// Null: that run has nothing more here. Of two names the lesser one is missing in the other run, since both are sorted.
TraceDifference between(Transcript::Place place, const Transcript::Entry* one, const Transcript::Entry* other) {
  if (one && other && one->what != other->what) (one->what < other->what ? other : one) = nullptr;
  TraceDifference out{place.first, place.second, one ? one->what : other->what, 0, 0, 0, one ? one->what : "nothing", other ? other->what : "nothing"};
  if (!one || !other) return out;
  out.one = "hash " + std::to_string(one->hash);
  out.other = "hash " + std::to_string(other->hash);
  if (one->widths != other->widths) return out;
  std::size_t at = 0;
  out.of = one->widths.size();
  for (std::size_t i = 0; i < one->widths.size(); at += one->widths[i++]) {
    const std::uint32_t width = one->widths[i];
    if (std::equal(one->bytes.begin() + at, one->bytes.begin() + at + width, other->bytes.begin() + at)) continue;
    if (out.elements++ > 0) continue;
    out.first = i;
    out.one = hex(one->bytes.data() + at, width);
    out.other = hex(other->bytes.data() + at, width);
  }
  return out;
}

// Ranks of one event may report in any interleaving, streams of one rank too: records of a kind and name are compared in their own order.
std::vector<const Transcript::Entry*> sorted(const std::vector<Transcript::Entry>& entries) {
  std::vector<const Transcript::Entry*> out;
  for (const Transcript::Entry& entry : entries) out.push_back(&entry);
  std::stable_sort(out.begin(), out.end(), [](const auto* a, const auto* b) { return a->what < b->what; });
  return out;
}

}  // namespace

std::optional<TraceDifference> first_difference(const Transcript& one, const Transcript& other) {
  static const std::vector<Transcript::Entry> none;
  std::map<Transcript::Place, int> places;
  for (const Transcript* side : {&one, &other})
    for (const auto& [place, entries] : side->entries()) places[place];
  for (const auto& [place, unused] : places) {
    const auto a = one.entries().find(place), b = other.entries().find(place);
    const auto left = sorted(a == one.entries().end() ? none : a->second), right = sorted(b == other.entries().end() ? none : b->second);
    for (std::size_t i = 0; i < std::max(left.size(), right.size()); ++i) {
      const Transcript::Entry* x = i < left.size() ? left[i] : nullptr;
      const Transcript::Entry* y = i < right.size() ? right[i] : nullptr;
      if (!x || !y || !(*x == *y)) return between(place, x, y);
    }
  }
  return std::nullopt;
}

}  // namespace gradledger
