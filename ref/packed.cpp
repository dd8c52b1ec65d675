#include "ref/packed.h"

#include <algorithm>
#include <bit>

#include "sim/base/hash.h"

namespace gradledger::ref {

Packing packing_of(const Timeline& timeline, const ProbeRange& range, double lone_rounding) {
  const std::uint32_t all = contributions_max(timeline);
  Packing out;
  out.exact = range.dyadic;
  out.unit = range.unit;
  std::uint32_t together = all;
  if (out.exact) {
    // Numbers from 1 to 2 are enough to tell a contribution from another one, over a few elements.
    constexpr std::uint32_t least_value_max = 2;
    const std::uint32_t sum_max = range.lit_max * range.value_max;
    together = std::clamp(sum_max / least_value_max, 1u, all);
    out.value_max = std::clamp(sum_max / together, 1u, 1u << 20);
  } else {
    // A weight is told from sums of rounded terms: their roundings together must stay well below one of them.
    constexpr double share = 0.125;
    if (lone_rounding * all > share) together = std::clamp(static_cast<std::uint32_t>(share / lone_rounding), 1u, all);
  }
  out.classes = (all + together - 1) / together;
  return out;
}

PackedSource::PackedSource(const Workload& workload, const Timeline& timeline, const Packing& packing, std::uint64_t seed, std::uint32_t run,
                           std::optional<std::uint32_t> every_second)
    : timeline_(timeline), packing_(packing), seed_(seed), run_(run), every_second_(every_second) {
  std::uint64_t at = 0;
  for (const Parameter& p : workload.parameters) {
    first_.push_back(at);
    at += p.numel;
  }
}

// In its window, rank by rank.
std::uint32_t PackedSource::number_of(const Backward& backward, std::uint32_t rank) const {
  std::uint32_t number = backward.micro_batch[rank];
  for (std::uint32_t r = 0; r < rank; ++r) number += timeline_.micro_batches[backward.step][r];
  return number;
}

void PackedSource::gradient(std::uint32_t backward, std::uint32_t rank, std::uint32_t parameter, std::uint64_t offset, std::span<double> out) const {
  const Backward& b = timeline_.backwards[backward];
  if (every_second_ && b.step % 2 != *every_second_) return std::fill(out.begin(), out.end(), 0.0);
  const std::uint32_t number = number_of(b, rank), classes = packing_.classes;
  const std::uint64_t stream = hash_keys({seed_, run_, backward, rank, parameter});
  const std::uint64_t slot = number / classes + (b.step % 4) * std::bit_ceil((contributions_max(timeline_) + classes - 1) / classes);  // of four windows in turn
  // Where sums are too large by several windows they are rounded: smaller numbers leave room for that.
  const std::uint32_t most = run_ != 1 ? packing_.value_max : std::max(packing_.value_max / 4, std::min(packing_.value_max, 3u));
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::uint64_t element = first_[parameter] + offset + i;
    out[i] = 0;
    if ((element + run_) % classes != number % classes) continue;
    const std::uint64_t word = mix(stream ^ mix(element));
    if (packing_.exact) {
      out[i] = packing_.unit * static_cast<double>(1 + (word >> 32) % most);
      continue;
    }
    // Walsh functions of the element: over a power of two of them any two contributions are orthogonal, but for the size of the numbers.
    const bool negative = std::popcount(slot & (element / classes)) % 2 != (run_ > 0 && stream % 2 == 1);
    const int spread = (SingleSource::probe_max - SingleSource::probe_min) / 2 + 1;
    const int probe = SingleSource::probe_min + 2 * static_cast<int>((word >> 32) % static_cast<std::uint64_t>(spread));
    out[i] = packing_.unit * (negative ? -probe : probe);
  }
}

}  // namespace gradledger::ref
