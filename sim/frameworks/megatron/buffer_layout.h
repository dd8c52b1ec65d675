// Where parameters lie in a contiguous buffer of gradients, and which bucket and which rank's part they are in.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace gradledger::megatron {

struct LaidParameter {
  std::uint32_t parameter = 0;
  std::uint64_t numel = 0;
  bool shared_embedding = false;
};

struct LayoutRules {
  bool distributed_optimizer = false;
  std::uint32_t ranks = 1;  // that a bucket is dealt to
  std::optional<std::uint64_t> bucket_size;
  bool high_bandwidth = false;      // pad_buckets_for_high_nccl_busbw
  bool keeps_bucket_start = false;  // Behaviour
};

struct ParameterPlace {
  std::uint32_t parameter = 0;
  std::uint64_t begin = 0, end = 0;
  std::uint32_t bucket = 0;
};

struct BucketRange {
  std::uint64_t begin = 0, end = 0;
};

struct BufferLayout {
  std::vector<ParameterPlace> parameters;  // in the order of the buffer: the model's, reversed
  std::vector<BucketRange> buckets;
  std::uint64_t numel = 0, numel_unpadded = 0;
};

// Elements with their padding. parameters: trainable, in the model's order.
std::uint64_t buffer_numel(const std::vector<LaidParameter>& parameters, const LayoutRules& rules);

BufferLayout buffer_layout(const std::vector<LaidParameter>& parameters, const LayoutRules& rules);

// A stretch of a parameter that lies in a rank's part of a bucket.
struct ShardPiece {
  std::uint32_t parameter = 0;
  std::uint64_t parameter_offset = 0, buffer_offset = 0, numel = 0;
};

// Of all buckets, in the order of the buffer.
std::vector<ShardPiece> shard_of(const BufferLayout& layout, std::uint32_t ranks, std::uint32_t rank);

}  // namespace gradledger::megatron
