#include "sim/frameworks/megatron/buffer_layout.h"

#include <algorithm>
#include <numeric>

namespace gradledger::megatron {
namespace {

std::uint64_t padded(std::uint64_t number, std::uint64_t divisor) { return (number + divisor - 1) / divisor * divisor; }

// One buffer, as the constructor walks through its parameters.
class LayoutWalk {
 public:
  explicit LayoutWalk(const LayoutRules& rules) : rules_(rules) {}

  BufferLayout run(const std::vector<LaidParameter>& parameters) {
    std::uint64_t start = 0, end = 0;
    for (auto p = parameters.rbegin(); p != parameters.rend(); ++p) {
      start = rules_.distributed_optimizer ? padded(start, 64) : start;
      const bool own_bucket = p->shared_embedding && rules_.distributed_optimizer;
      if (own_bucket && rules_.keeps_bucket_start && start % rules_.ranks != 0) start = padded_bucket(start);
      if (own_bucket && in_bucket_ > 0) {
        const std::uint64_t closed = close_bucket(start);
        if (!rules_.keeps_bucket_start) start = closed;
      }
      end = start + p->numel;
      out_.parameters.push_back({p->parameter, start, end, static_cast<std::uint32_t>(out_.buckets.size())});
      ++in_bucket_;
      const bool full = rules_.bucket_size && end >= bucket_start_ && end - bucket_start_ >= *rules_.bucket_size;
      start = full || own_bucket ? close_bucket(end) : end;
    }
    if (in_bucket_ > 0) close_bucket(end);
    out_.numel = out_.buckets.empty() ? 0 : out_.buckets.back().end;
    return std::move(out_);
  }

  std::uint64_t numel() const { return bucket_start_; }  // behind run()

 private:
  std::uint64_t padded_bucket(std::uint64_t end) const { return padded(end, std::lcm(std::lcm(rules_.ranks, 128u), rules_.high_bandwidth ? 1u << 16 : 1u)); }

  // The end of the bucket, behind its padding.
  std::uint64_t close_bucket(std::uint64_t end) {
    out_.numel_unpadded += end - bucket_start_;
    if (rules_.distributed_optimizer) end = padded_bucket(end);
    out_.buckets.push_back({bucket_start_, end});
    bucket_start_ = end;
    in_bucket_ = 0;
    return end;
  }

  const LayoutRules& rules_;
  BufferLayout out_;
  std::uint64_t bucket_start_ = 0;
  std::uint64_t in_bucket_ = 0;
};

}  // namespace

BufferLayout buffer_layout(const std::vector<LaidParameter>& parameters, const LayoutRules& rules) { return LayoutWalk(rules).run(parameters); }

std::uint64_t buffer_numel(const std::vector<LaidParameter>& parameters, const LayoutRules& rules) {
  LayoutWalk walk(rules);
  walk.run(parameters);
  return walk.numel();
}

std::vector<ShardPiece> shard_of(const BufferLayout& layout, std::uint32_t ranks, std::uint32_t rank) {
  std::vector<ShardPiece> out;
  for (const BucketRange& bucket : layout.buckets) {
    const std::uint64_t part = (bucket.end - bucket.begin) / ranks;
    const std::uint64_t begin = bucket.begin + rank * part, end = begin + part;
    for (const ParameterPlace& p : layout.parameters) {
      const std::uint64_t from = std::max(begin, p.begin), to = std::min(end, p.end);
      if (from < to) out.push_back({p.parameter, from - p.begin, from, to - from});
    }
  }
  return out;
}

}  // namespace gradledger::megatron
