// Random configurations of every engine in which nothing is known to be wrong: the newest behaviour, used as documented.
#pragma once

#include <rapidcheck/gtest.h>

#include "sim/frameworks/deepspeed/settings.h"
#include "tests/support/scenarios.h"

namespace gradledger::testing {

inline Scenario any_clean_scenario() {
  const std::uint32_t world = *rc::gen::inRange(1u, 7u).as("world size");
  const Dtype dtype = *rc::gen::element(Dtype::float32, Dtype::bfloat16, Dtype::float16).as("dtype");
  const auto sizes = *rc::gen::nonEmpty(rc::gen::resize(5, rc::gen::container<std::vector<std::uint32_t>>(rc::gen::inRange(1u, 41u)))).as("sizes");
  Scenario s = base_scenario(world, sizes, dtype);
  DeepSpeedConfig& config = deepspeed_config(s);
  config.zero.stage = *rc::gen::inRange(0u, 4u).as("stage");
  if (config.zero.stage > 0 && *rc::gen::arbitrary<bool>().as("offload")) config.zero.offload_optimizer = OffloadDevice::cpu;
  config.zero.contiguous_gradients = *rc::gen::arbitrary<bool>().as("contiguous_gradients");
  config.zero.overlap_comm = *rc::gen::arbitrary<bool>().as("overlap_comm");
  config.zero.reduce_scatter = *rc::gen::arbitrary<bool>().as("reduce_scatter");
  config.zero.use_multi_rank_bucket_allreduce = *rc::gen::arbitrary<bool>().as("use_multi_rank_bucket_allreduce");
  config.zero.reduce_bucket_size = *rc::gen::element<std::uint64_t>(32, 64, 500'000'000).as("reduce_bucket_size");
  config.zero.sub_group_size = *rc::gen::element<std::uint64_t>(16, 1'000'000'000).as("sub_group_size");
  if (*rc::gen::arbitrary<bool>().as("fp32 accumulation")) config.grad_accum_dtype = Dtype::float32;
  if (*rc::gen::arbitrary<bool>().as("clipping")) config.gradient_clipping = 0.5;
  s.engine.optimizer.type = *rc::gen::element(OptimizerType::sgd, OptimizerType::adam, OptimizerType::adamw).as("optimizer");

  const std::uint32_t micro_batches = *rc::gen::inRange(1u, 6u).as("micro-batches");
  const std::uint32_t windows = *rc::gen::inRange(1u, 4u).as("windows");
  if (*rc::gen::arbitrary<bool>().as("boundary by hand")) {
    s.script = {repeat(windows, with_boundary_calls(micro_batches))};
  } else {
    config.gradient_accumulation_steps = micro_batches;
    s.script = {repeat(windows, managed(micro_batches))};
  }
  return s;
}

}  // namespace gradledger::testing
