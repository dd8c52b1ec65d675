#include "sim/execution/collectives.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "sim/base/contract.h"
#include "sim/numeric/kernels.h"

namespace gradledger {
namespace {

// NCCL 2.28: one channel, NCCL_BUFFSIZE of 4 MiB, half of it a chunk, cut to whole 512-byte lines.
constexpr std::uint64_t chunk_bytes = (4ull << 20) / 8 * 4 / 512 * 512;
constexpr std::uint64_t grain_bytes = 16;

struct ElementRange {
  std::uint64_t begin, end;
  std::uint32_t owner;
};

// The stretch of elements, beginning at `index`, that share an owner.
ElementRange all_reduce_stretch(std::uint64_t index, std::uint64_t numel, std::uint32_t world, Dtype dtype) {
  const std::uint64_t chunk = chunk_bytes / size_of(dtype);
  const std::uint64_t loop = world * chunk;
  const std::uint64_t loop_begin = index / loop * loop;
  const std::uint64_t rest = numel - loop_begin;
  const std::uint64_t grain = std::max<std::uint64_t>(1, grain_bytes / size_of(dtype));
  const std::uint64_t even = (rest + world - 1) / world;
  const std::uint64_t k = rest < loop ? (even + grain - 1) / grain * grain : chunk;
  const std::uint64_t owner = (index - loop_begin) / k;
  return {index, std::min(numel, loop_begin + (owner + 1) * k), static_cast<std::uint32_t>(owner)};
}

// Gloo cuts the data into two segments a rank; two neighbouring segments share an owner.
ElementRange gloo_stretch(std::uint64_t index, std::uint64_t numel, std::uint32_t world) {
  const std::uint64_t chunk = 2 * ((numel + 2 * world - 1) / (2 * world));
  const std::uint64_t owner = index / chunk;
  return {index, std::min(numel, (owner + 1) * chunk), static_cast<std::uint32_t>(owner)};
}

// How ranks' values become one.
struct Reduction {
  ReduceOp op = ReduceOp::sum;
  double factor = 1;  // premultiplied_sum
  CollectiveArithmetic arithmetic = CollectiveArithmetic::nccl_ring;
  bool descending = false;  // gloo of today: the chain goes down through the ranks, to its owner
};

// Today's gloo: what each rank hands over is multiplied first and rounded, sums are rounded at each addition, and an average is divided at the end.
template <class Input>
void reduce_as_gloo(const Reduction& how, Dtype dtype, std::uint32_t owner, std::uint32_t world, std::size_t n, std::byte* sum, std::vector<std::byte>& scaled, Input&& input) {
  const auto handed_over = [&](std::uint32_t rank) {
    const std::byte* given = input(rank);
    if (how.op != ReduceOp::premultiplied_sum) return given;
    scaled.assign(given, given + n * size_of(dtype));
    numeric::multiply(dtype, scaled.data(), static_cast<float>(how.factor), n);
    return static_cast<const std::byte*>(scaled.data());
  };
  const auto at = [&](std::uint32_t hop) { return (how.descending ? owner + world - hop : owner + hop) % world; };
  std::memcpy(sum, handed_over(at(1)), n * size_of(dtype));
  for (std::uint32_t hop = 2; hop <= world; ++hop) numeric::accumulate(dtype, sum, dtype, handed_over(at(hop)), n);
  if (how.op == ReduceOp::avg) numeric::divide(dtype, sum, static_cast<float>(world), n);
}

// Reduces `n` elements of one stretch into `sum`; input(r) is rank r's data for it.
template <class Input>
void reduce_stretch(const Reduction& how, Dtype dtype, std::uint32_t owner, std::uint32_t world, std::size_t n, std::byte* sum, std::vector<float>& wide,
                    std::vector<std::byte>& scaled, Input&& input) {
  const auto [op, factor, arithmetic, descending] = how;
  if (op == ReduceOp::max) {
    expects(dtype == Dtype::uint8, "max is defined for flags");
    std::memcpy(sum, input(0u), n);
    for (std::uint32_t r = 1; r < world; ++r) numeric::maximum_u8(sum, input(r), n);
    return;
  }
  if (dtype == Dtype::int32) {
    expects(op == ReduceOp::sum, "counts are added up");
    std::memcpy(sum, input(0u), n * sizeof(std::int32_t));
    for (std::uint32_t r = 1; r < world; ++r)
      for (std::size_t i = 0; i < n; ++i) reinterpret_cast<std::int32_t*>(sum)[i] += reinterpret_cast<const std::int32_t*>(input(r))[i];
    return;
  }
  if (dtype == Dtype::float64) {
    // Totals: the chain as for any dtype, but that of recordings of an older gloo, whose only totals are added in rank order.
    const std::uint32_t start = arithmetic == CollectiveArithmetic::gloo_fp32 ? 0 : (descending ? owner + world - 1 : owner + 1) % world;
    auto* total = reinterpret_cast<double*>(sum);
    for (std::size_t i = 0; i < n; ++i) total[i] = reinterpret_cast<const double*>(input(start))[i] * factor;
    for (std::uint32_t hop = 1; hop < world; ++hop)
      for (std::size_t i = 0; i < n; ++i) total[i] += reinterpret_cast<const double*>(input((descending ? start + world - hop : start + hop) % world))[i] * factor;
    for (std::size_t i = 0; op == ReduceOp::avg && i < n; ++i) total[i] /= world;
    return;
  }
  if (arithmetic == CollectiveArithmetic::gloo) return reduce_as_gloo(how, dtype, owner, world, n, sum, scaled, input);
  const bool premultiplies = op == ReduceOp::avg || op == ReduceOp::premultiplied_sum;
  const auto scalar = static_cast<float>(op == ReduceOp::avg ? 1.0 / world : factor);
  const std::uint32_t first = (owner + 1) % world;
  if (arithmetic == CollectiveArithmetic::gloo_fp32) {
    wide.resize(n);
    numeric::convert(Dtype::float32, wide.data(), dtype, input(first), n);
    for (std::uint32_t hop = 2; hop <= world; ++hop) numeric::accumulate(Dtype::float32, wide.data(), dtype, input((owner + hop) % world), n);
    if (premultiplies) numeric::multiply(Dtype::float32, wide.data(), scalar, n);
    numeric::convert(dtype, sum, Dtype::float32, wide.data(), n);
    return;
  }
  if (premultiplies) numeric::premultiply(dtype, sum, input(first), scalar, n);
  else std::memcpy(sum, input(first), n * size_of(dtype));
  for (std::uint32_t hop = 2; hop <= world; ++hop) {
    const std::uint32_t rank = (owner + hop) % world;
    if (premultiplies) numeric::fused_accumulate(dtype, sum, input(rank), scalar, n);
    else numeric::accumulate(dtype, sum, dtype, input(rank), n);
  }
}

class Runner {
 public:
  Runner(const Reduction& how, Dtype dtype, std::span<const CollectiveBuffers> ranks) : how_(how), dtype_(dtype), ranks_(ranks), width_(size_of(dtype)) {}

  void all_reduce(std::uint64_t numel) {
    how_.descending = how_.arithmetic == CollectiveArithmetic::gloo;
    for (std::uint64_t at = 0; at < numel;) {
      const ElementRange stretch = how_.arithmetic == CollectiveArithmetic::nccl_ring ? all_reduce_stretch(at, numel, world(), dtype_) : gloo_stretch(at, numel, world());
      in_pieces(stretch.begin, stretch.end, stretch.owner, [&](std::uint64_t from, std::size_t n) {
        for (const CollectiveBuffers& rank : ranks_) std::memcpy(rank.output + from * width_, sum(), n * width_);
      });
      at = stretch.end;
    }
  }

  void reduce(std::uint64_t numel, std::uint32_t root) {
    in_pieces(0, numel, root, [&](std::uint64_t from, std::size_t n) { std::memcpy(ranks_[root].output + from * width_, sum(), n * width_); });
  }

  void reduce_scatter(std::uint64_t numel) {
    expects(numel % world() == 0, "a reduce_scatter whose input does not split evenly");
    const std::uint64_t chunk = numel / world();
    if (how_.arithmetic == CollectiveArithmetic::gloo) return reduce_scatter_as_gloo(numel, chunk);
    for (std::uint32_t owner = 0; owner < world(); ++owner)
      in_pieces(owner * chunk, (owner + 1) * chunk, owner,
                [&](std::uint64_t from, std::size_t n) { std::memcpy(ranks_[owner].output + (from - owner * chunk) * width_, sum(), n * width_); });
  }

  // Gloo's stretches are those of an all_reduce, which end elsewhere than the chunks.
  void reduce_scatter_as_gloo(std::uint64_t numel, std::uint64_t chunk) {
    how_.descending = true;
    for (std::uint64_t at = 0; at < numel;) {
      const ElementRange stretch = gloo_stretch(at, numel, world());
      in_pieces(stretch.begin, stretch.end, stretch.owner, [&](std::uint64_t from, std::size_t n) {
        for (std::uint64_t i = from; i < from + n;) {
          const std::uint64_t rank = i / chunk, end = std::min<std::uint64_t>(from + n, (rank + 1) * chunk);
          std::memcpy(ranks_[rank].output + (i - rank * chunk) * width_, sum() + (i - from) * width_, (end - i) * width_);
          i = end;
        }
      });
      at = stretch.end;
    }
  }

  void all_gather(std::uint64_t numel) {
    const std::size_t bytes = numel * static_cast<std::size_t>(width_);
    for (std::uint32_t r = 0; r < world(); ++r)
      for (const CollectiveBuffers& rank : ranks_)
        if (rank.output + r * bytes != ranks_[r].input) std::memcpy(rank.output + r * bytes, ranks_[r].input, bytes);
  }

  void broadcast(std::uint64_t numel, std::uint32_t root) {
    for (const CollectiveBuffers& rank : ranks_)
      if (rank.output != ranks_[root].input) std::memcpy(rank.output, ranks_[root].input, numel * static_cast<std::size_t>(width_));
  }

 private:
  static constexpr std::size_t piece_bytes = 64 << 10;  // stays in cache, so that every input is read once

  std::uint32_t world() const { return static_cast<std::uint32_t>(ranks_.size()); }
  const std::byte* sum() const { return sum_.data(); }

  template <class Store>
  void in_pieces(std::uint64_t begin, std::uint64_t end, std::uint32_t owner, Store&& store) {
    const std::uint64_t piece = piece_bytes / width_;
    for (std::uint64_t from = begin; from < end; from += piece) {
      const std::size_t n = std::min(piece, end - from);
      reduce_stretch(how_, dtype_, owner, world(), n, sum_.data(), wide_, scaled_, [&](std::uint32_t r) { return ranks_[r].input + from * width_; });
      store(from, n);
    }
  }

  Reduction how_;
  Dtype dtype_;
  std::span<const CollectiveBuffers> ranks_;
  std::uint32_t width_;
  std::vector<float> wide_;
  std::vector<std::byte> scaled_;
  alignas(64) std::array<std::byte, piece_bytes> sum_;
};

}  // namespace

std::uint32_t all_reduce_owner(std::uint64_t index, std::uint64_t numel, std::uint32_t world, Dtype dtype) {
  expects(index < numel, "an element past the end has no owner");
  return all_reduce_stretch(index, numel, world, dtype).owner;
}

void run_collective(CollectiveKind kind, ReduceOp op, Dtype dtype, std::uint64_t numel, std::uint32_t root, CollectiveArithmetic arithmetic,
                    std::span<const CollectiveBuffers> ranks, double factor) {
  expects(!ranks.empty() && root < ranks.size(), "a collective without its ranks");
  Runner runner({op, op == ReduceOp::premultiplied_sum ? factor : 1.0, arithmetic, false}, dtype, ranks);
  switch (kind) {
    case CollectiveKind::all_reduce: return runner.all_reduce(numel);
    case CollectiveKind::reduce: return runner.reduce(numel, root);
    case CollectiveKind::reduce_scatter: return runner.reduce_scatter(numel);
    case CollectiveKind::all_gather: return runner.all_gather(numel);
    case CollectiveKind::broadcast: return runner.broadcast(numel, root);
  }
}

}  // namespace gradledger
