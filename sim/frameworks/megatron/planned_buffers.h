// Which buffers of gradients a rank has, what lies in them and how, before anything is allocated.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/frameworks/megatron/buffer_layout.h"
#include "sim/frameworks/megatron/setup.h"

namespace gradledger::megatron {

struct PlannedBuffer {
  std::uint32_t chunk = 0;  // of the model, each of which is wrapped by itself
  bool of_experts = false;
  Dtype dtype = Dtype::float32;  // of its parameters
  ProcessGroup group;            // that a bucket is dealt to
  std::vector<LaidParameter> laid;
  LayoutRules rules;
};

std::vector<PlannedBuffer> planned_buffers(const Setup& setup);

}  // namespace gradledger::megatron
