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

// Reduces `n` elements of one stretch into `sum`; input(r) is rank r's data for it.
template <class Input>
void reduce_stretch(ReduceOp op, Dtype dtype, std::uint32_t owner, std::uint32_t world, CollectiveArithmetic arithmetic, std::size_t n, std::byte* sum, std::vector<float>& wide,
                    Input&& input) {
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
    const std::uint32_t start = arithmetic == CollectiveArithmetic::gloo_fp32 ? 0 : (owner + 1) % world;
    auto* total = reinterpret_cast<double*>(sum);
    std::memcpy(total, input(start), n * sizeof(double));
    for (std::uint32_t hop = 1; hop < world; ++hop)
      for (std::size_t i = 0; i < n; ++i) total[i] += reinterpret_cast<const double*>(input((start + hop) % world))[i];
    for (std::size_t i = 0; op == ReduceOp::avg && i < n; ++i) total[i] /= world;
    return;
  }
  const auto scalar = static_cast<float>(1.0 / world);
  const std::uint32_t first = (owner + 1) % world;
  if (arithmetic == CollectiveArithmetic::gloo_fp32) {
    wide.resize(n);
    numeric::convert(Dtype::float32, wide.data(), dtype, input(first), n);
    for (std::uint32_t hop = 2; hop <= world; ++hop) numeric::accumulate(Dtype::float32, wide.data(), dtype, input((owner + hop) % world), n);
    if (op == ReduceOp::avg) numeric::multiply(Dtype::float32, wide.data(), scalar, n);
    numeric::convert(dtype, sum, Dtype::float32, wide.data(), n);
    return;
  }
  if (op == ReduceOp::avg) numeric::premultiply(dtype, sum, input(first), scalar, n);
  else std::memcpy(sum, input(first), n * size_of(dtype));
  for (std::uint32_t hop = 2; hop <= world; ++hop) {
    const std::uint32_t rank = (owner + hop) % world;
    if (op == ReduceOp::avg) numeric::fused_accumulate(dtype, sum, input(rank), scalar, n);
    else numeric::accumulate(dtype, sum, dtype, input(rank), n);
  }
}

class Runner {
 public:
  Runner(ReduceOp op, Dtype dtype, CollectiveArithmetic arithmetic, std::span<const CollectiveBuffers> ranks)
      : op_(op), dtype_(dtype), arithmetic_(arithmetic), ranks_(ranks), width_(size_of(dtype)) {}

  void all_reduce(std::uint32_t numel) {
    for (std::uint64_t at = 0; at < numel;) {
      const ElementRange stretch = arithmetic_ == CollectiveArithmetic::nccl_ring ? all_reduce_stretch(at, numel, world(), dtype_) : gloo_stretch(at, numel, world());
      in_pieces(stretch.begin, stretch.end, stretch.owner, [&](std::uint64_t from, std::size_t n) {
        for (const CollectiveBuffers& rank : ranks_) std::memcpy(rank.output + from * width_, sum(), n * width_);
      });
      at = stretch.end;
    }
  }

  void reduce(std::uint32_t numel, std::uint32_t root) {
    in_pieces(0, numel, root, [&](std::uint64_t from, std::size_t n) { std::memcpy(ranks_[root].output + from * width_, sum(), n * width_); });
  }

  void reduce_scatter(std::uint32_t numel) {
    expects(numel % world() == 0, "a reduce_scatter whose input does not split evenly");
    const std::uint64_t chunk = numel / world();
    for (std::uint32_t owner = 0; owner < world(); ++owner)
      in_pieces(owner * chunk, (owner + 1) * chunk, owner,
                [&](std::uint64_t from, std::size_t n) { std::memcpy(ranks_[owner].output + (from - owner * chunk) * width_, sum(), n * width_); });
  }

  void all_gather(std::uint32_t numel) {
    const std::size_t bytes = numel * static_cast<std::size_t>(width_);
    for (std::uint32_t r = 0; r < world(); ++r)
      for (const CollectiveBuffers& rank : ranks_)
        if (rank.output + r * bytes != ranks_[r].input) std::memcpy(rank.output + r * bytes, ranks_[r].input, bytes);
  }

  void broadcast(std::uint32_t numel, std::uint32_t root) {
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
      reduce_stretch(op_, dtype_, owner, world(), arithmetic_, n, sum_.data(), wide_, [&](std::uint32_t r) { return ranks_[r].input + from * width_; });
      store(from, n);
    }
  }

  ReduceOp op_;
  Dtype dtype_;
  CollectiveArithmetic arithmetic_;
  std::span<const CollectiveBuffers> ranks_;
  std::uint32_t width_;
  std::vector<float> wide_;
  alignas(64) std::array<std::byte, piece_bytes> sum_;
};

}  // namespace

std::uint32_t all_reduce_owner(std::uint64_t index, std::uint64_t numel, std::uint32_t world, Dtype dtype) {
  expects(index < numel, "an element past the end has no owner");
  return all_reduce_stretch(index, numel, world, dtype).owner;
}

void run_collective(CollectiveKind kind, ReduceOp op, Dtype dtype, std::uint32_t numel, std::uint32_t root, CollectiveArithmetic arithmetic,
                    std::span<const CollectiveBuffers> ranks) {
  expects(!ranks.empty() && root < ranks.size(), "a collective without its ranks");
  Runner runner(op, dtype, arithmetic, ranks);
  switch (kind) {
    case CollectiveKind::all_reduce: return runner.all_reduce(numel);
    case CollectiveKind::reduce: return runner.reduce(numel, root);
    case CollectiveKind::reduce_scatter: return runner.reduce_scatter(numel);
    case CollectiveKind::all_gather: return runner.all_gather(numel);
    case CollectiveKind::broadcast: return runner.broadcast(numel, root);
  }
}

}  // namespace gradledger
