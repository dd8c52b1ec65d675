#include "sim/frameworks/torch/ddp/buckets.h"

#include <algorithm>
#include <limits>

namespace gradledger::torch {
namespace {

constexpr double mebibyte = 1048576;
constexpr std::uint64_t default_first_bytes = 1048576;
constexpr double default_cap_mb = 25;

BucketLimits in_bytes(const std::vector<double>& megabytes) {
  BucketLimits out;
  for (const double cap : megabytes) out.push_back(static_cast<std::uint64_t>(cap * mebibyte));
  return out;
}

// A cap that is given takes the place of the small first bucket too.
BucketLimits capped(const DdpConfig& config) {
  if (config.bucket_cap_mb) return in_bytes({*config.bucket_cap_mb});
  return {default_first_bytes, in_bytes({default_cap_mb}).front()};
}

struct OpenBucket {
  Dtype dtype;
  std::vector<std::uint32_t> indices;
  std::uint64_t bytes = 0;
  std::size_t limit = 0;  // indexes the limits
};

BucketAssignment assign(const std::vector<SizedParameter>& parameters, const BucketLimits& limits) {
  BucketAssignment out;
  std::vector<OpenBucket> open;
  for (const SizedParameter& p : parameters) {
    auto bucket = std::find_if(open.begin(), open.end(), [&](const OpenBucket& b) { return b.dtype == p.dtype; });
    if (bucket == open.end()) bucket = open.insert(open.end(), OpenBucket{p.dtype, {}});
    bucket->indices.push_back(p.index);
    bucket->bytes += std::uint64_t{p.numel} * size_of(p.dtype);
    if (bucket->bytes < limits[bucket->limit]) continue;
    out.push_back(std::move(bucket->indices));
    bucket->indices.clear();
    bucket->bytes = 0;
    bucket->limit = std::min(bucket->limit + 1, limits.size() - 1);
  }
  // PyTorch walks a hash map here, in which the dtype that came last stands first.
  for (auto bucket = open.rbegin(); bucket != open.rend(); ++bucket)
    if (!bucket->indices.empty()) out.push_back(std::move(bucket->indices));
  return out;
}

}  // namespace

BucketLimits initial_limits(const DdpConfig& config) {
  if (!config.bucket_cap_mb_list.empty()) return in_bytes(config.bucket_cap_mb_list);
  // Buckets that will be rebuilt in the right order need not be cut before.
  if (!config.searches_unused()) return {std::numeric_limits<std::uint64_t>::max()};
  return capped(config);
}

BucketLimits rebuilt_limits(const DdpConfig& config) { return config.bucket_cap_mb_list.empty() ? capped(config) : in_bytes(config.bucket_cap_mb_list); }

BucketAssignment initial_buckets(const std::vector<SizedParameter>& parameters, const BucketLimits& limits) {
  BucketAssignment out = assign(parameters, limits);
  const auto least = [](const std::vector<std::uint32_t>& bucket) { return *std::min_element(bucket.begin(), bucket.end()); };
  std::sort(out.begin(), out.end(), [&](const auto& a, const auto& b) { return least(a) > least(b); });
  return out;
}

BucketAssignment rebuilt_buckets(const std::vector<SizedParameter>& parameters, const BucketLimits& limits) { return assign(parameters, limits); }

}  // namespace gradledger::torch
