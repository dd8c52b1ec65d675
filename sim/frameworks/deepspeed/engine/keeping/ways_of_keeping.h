// Which way of keeping reduced gradients a configuration and a release have.
#pragma once

#include <variant>

#include "sim/frameworks/deepspeed/engine/keeping/device_lists.h"
#include "sim/frameworks/deepspeed/engine/keeping/fp32_partition.h"
#include "sim/frameworks/deepspeed/engine/keeping/host_accumulators.h"

namespace gradledger {

// One of them, as a value.
class WayOfKeeping {
 public:
  WayOfKeeping(const Scenario& scenario, const Behaviour& behaviour, const FlatGroups& weights) : way_(chosen(scenario, behaviour, weights)) {}

  KeptGradients* operator->() {
    return std::visit([](KeptGradients& way) { return &way; }, way_);
  }
  const KeptGradients* operator->() const {
    return std::visit([](const KeptGradients& way) { return &way; }, way_);
  }

 private:
  using Way = std::variant<DeviceLists, DevicePartition, HostAccumulators, OffloadedPartition>;

  static Way chosen(const Scenario& scenario, const Behaviour& behaviour, const FlatGroups& weights) {
    const Dtype model = scenario.model_dtype, sum = grad_accum_dtype_of(scenario);
    const bool partition = behaviour.stage12_fp32_partition == Fp32Partition::accumulates && sum == Dtype::float32 && model != Dtype::float32;
    const std::size_t parameters = scenario.parameters.size();
    if (deepspeed_config(scenario).offloads_optimizer()) return partition ? Way(OffloadedPartition(weights, parameters)) : Way(HostAccumulators(parameters));
    return partition ? Way(DevicePartition(weights)) : Way(DeviceLists(weights, uses_muon(scenario)));
  }

  Way way_;
};

}  // namespace gradledger
