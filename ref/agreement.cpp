#include "ref/agreement.h"

#include <algorithm>
#include <cstring>

#include "ref/dtype_facts.h"

namespace gradledger::ref {
namespace {

std::uint64_t bits_of(const std::byte* at, std::size_t width) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, at, width);
  return bits;
}

}  // namespace

// Local sums differ by nature; everything after a reduction or a step must not.
bool AgreementJudge::must_agree(const Observation& o) const {
  if (o.role == Role::scratch || o.role == Role::local_accumulator) return false;
  if (o.at_end && holds_gradients(o.role) && timeline_.reduction_before(o.event + 1, timeline_.events[o.event].documented) == never) return false;  // left over
  if (holds_gradients(o.role) && o.role != Role::applied_gradient && timeline_.apart_at(o.event, o.at_end)) return false;
  return o.role != Role::replicated_accumulator || !timeline_.waits_for_reduction(o.event);
}

void AgreementJudge::observe(const Observation& o) {
  if (world_ == 1 || !must_agree(o)) return;
  std::vector<Stretch>& stretches = waiting_[{o.event, o.at_end, std::string(o.buffer)}];
  for (const ObservedPiece& piece : o.pieces) {
    if (piece.parameter < 0 || piece.numel == 0) continue;
    bool known = false;
    for (const Stretch& stretch : stretches) {
      if (stretch.parameter != static_cast<std::uint32_t>(piece.parameter) || stretch.rank == o.rank) continue;
      hold_against(o, piece, stretch);
      known = known || (stretch.offset <= piece.parameter_offset && piece.parameter_offset + piece.numel <= stretch.offset + stretch.numel);
    }
    if (known) continue;
    const std::size_t bytes = std::size_t{piece.numel} * size_of(piece.dtype);
    stretches.push_back(
        {o.rank, static_cast<std::uint32_t>(piece.parameter), piece.parameter_offset, piece.numel, piece.dtype, std::vector<std::byte>(piece.data, piece.data + bytes)});
  }
}

void AgreementJudge::hold_against(const Observation& o, const ObservedPiece& piece, const Stretch& stretch) {
  if (piece.dtype != stretch.dtype) return;
  const std::uint64_t begin = std::max(piece.parameter_offset, stretch.offset);
  const std::uint64_t end = std::min(piece.parameter_offset + piece.numel, stretch.offset + stretch.numel);
  if (begin >= end) return;
  const std::size_t width = size_of(piece.dtype);
  const std::byte* mine = piece.data + (begin - piece.parameter_offset) * width;
  const std::byte* other = stretch.bytes.data() + (begin - stretch.offset) * width;
  if (std::memcmp(mine, other, (end - begin) * width) == 0) return;
  Divergence divergence{o.event, o.at_end, std::string(o.buffer), o.role, o.rank, stretch.rank, stretch.parameter, 0, 0, 0, 0, 0, piece.dtype, 0};
  for (std::uint64_t e = begin; e < end; ++e) {
    const std::byte* a = mine + (e - begin) * width;
    const std::byte* b = other + (e - begin) * width;
    if (std::memcmp(a, b, width) == 0 || divergence.elements++ > 0) continue;
    divergence.element = e;
    divergence.bits = bits_of(a, width);
    divergence.other_bits = bits_of(b, width);
    divergence.value = decode_stored(piece.dtype, a);
    divergence.other_value = decode_stored(piece.dtype, b);
  }
  divergences_.push_back(std::move(divergence));
}

void AgreementJudge::event_done(std::uint32_t rank, std::uint32_t event) {
  const std::uint32_t all = slowest_.done(rank, event);
  while (!waiting_.empty() && waiting_.begin()->first.event < all) waiting_.erase(waiting_.begin());
}

}  // namespace gradledger::ref
