// How DistributedDataParallel deals parameters into buckets.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/frameworks/torch/ddp/config.h"
#include "sim/numeric/dtype.h"

namespace gradledger::torch {

struct SizedParameter {
  std::uint32_t index = 0;
  std::uint64_t numel = 0;
  Dtype dtype = Dtype::float32;
};

// Bytes at which a bucket is closed, one bucket after the other; the last one repeats.
using BucketLimits = std::vector<std::uint64_t>;
BucketLimits initial_limits(const DdpConfig& config);
BucketLimits rebuilt_limits(const DdpConfig& config);

// Indices of parameters, bucket by bucket, each of one dtype. A bucket is closed once it has its limit, so it may exceed it by one parameter.
using BucketAssignment = std::vector<std::vector<std::uint32_t>>;

// Of the constructor: parameters in the model's order; buckets are reduced last first, as backward reaches them.
BucketAssignment initial_buckets(const std::vector<SizedParameter>& parameters, const BucketLimits& limits);
// Of the rebuild: parameters in the order in which their gradients were ready.
BucketAssignment rebuilt_buckets(const std::vector<SizedParameter>& parameters, const BucketLimits& limits);

}  // namespace gradledger::torch
