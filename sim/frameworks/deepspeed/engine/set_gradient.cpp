// What users do to a gradient through the framework's API: they get it, multiply it and set it again. On every wrapper param.grad comes
// first, where there is one, and the wrapper's own buffers only behind it: each wrapper's file has its part.
#include <algorithm>
#include <string>

#include "sim/frameworks/deepspeed/engine/deepspeed_engine.h"

namespace gradledger {

void DeepSpeedEngine::set_gradient(const events::SetGradient& event, ProgramWriter& w) {
  if (behaviour().set_gradient_api == SetGradientApi::absent)
    throw FrameworkError{"ImportError", std::string("cannot import name '") + (event.local ? "safe_set_local_grad" : "safe_set_full_grad") + "' from 'deepspeed.utils'"};
  if (!holds(scenario(), rank(), event.parameter)) return;
  if (event.local) return set_own_partition(event, w);
  if (grad_[event.parameter].defined() && sets_param_grad()) return w.multiply(grad_[event.parameter].slice, event.factor);
  set_whole_gradient(event, w);
}

// Stage 0: what the getter returns is None.
void DeepSpeedEngine::set_whole_gradient(const events::SetGradient&, ProgramWriter&) {
  throw FrameworkError{"TypeError", "unsupported operand type(s) for *: 'NoneType' and 'float'"};
}

void DeepSpeedEngine::set_own_partition(const events::SetGradient&, ProgramWriter&) {
  throw FrameworkError{"AssertionError", "This API is only defined for ZeRO-3 partitioned parameters"};
}

Tensor DeepSpeedEngine::times_factor(const events::SetGradient& event, ProgramWriter& w, Slice held, std::uint64_t offset) {
  const Tensor full = tensors_.allocate(w, "reduce_buffer", Dtype::float32, numel(event.parameter));
  w.fill(full.slice, 0.0);
  if (held.numel > 0) w.copy_over_the_bus(full.slice.part(offset, held.numel), held, false);
  const bool of_expert = scenario().parameters[event.parameter].expert.has_value();
  const std::uint32_t group = of_expert ? expert_data_parallel_group(scenario(), rank()).id : peers().id;
  w.collective({.purpose = Purpose::user, .group = group, .input = full.slice, .output = full.slice});
  w.multiply(full.slice, event.factor);
  return full;
}

// What is as long as the parameter counts as all of it, from 0.19.8 on no further than the rank's part; anything else must fit the part, as one element does,
// which is repeated then.
Tensor DeepSpeedEngine::times_factor_of_found(const events::SetGradient& event, ProgramWriter& w, const OwnedPart& part, Slice found) {
  if (part.numel == 0) return times_factor(event, w, Slice{}, 0);
  if (found.numel == part.numel) return times_factor(event, w, found, part.parameter_offset);
  if (found.numel == numel(event.parameter)) {
    if (behaviour().bf16_get_gradient != Bf16GetGradient::owned_fragment) return times_factor(event, w, found, 0);
    return times_factor(event, w, found.part(part.parameter_offset, part.numel), part.parameter_offset);
  }
  if (found.numel != 1)
    throw FrameworkError{"RuntimeError", "The size of tensor a (" + std::to_string(part.numel) + ") must match the size of tensor b (" + std::to_string(found.numel) +
                                             ") at non-singleton dimension 0"};
  Tensor buffer;
  Tensor full = times_factor(event, w, repeated(w, found, part.numel, buffer), part.parameter_offset);
  tensors_.clear(w, buffer);
  return full;
}

Slice DeepSpeedEngine::repeated(ProgramWriter& w, Slice one, std::uint64_t times, Tensor& buffer) {
  buffer = tensors_.allocate(w, "hp_grad_fragment", Dtype::float32, times);
  w.copy_over_the_bus(buffer.slice.part(0, 1), one, false);
  for (std::uint64_t filled = 1; filled < times; filled *= 2) {
    const std::uint64_t more = std::min(filled, times - filled);
    w.copy(buffer.slice.part(filled, more), buffer.slice.part(0, more));
  }
  return buffer.slice;
}

Slice DeepSpeedEngine::set_from(const OwnedPart& part, Slice found, Slice full) {
  if (part.numel != found.numel) throw FrameworkError{"RuntimeError", "shape '[" + std::to_string(found.numel) + "]' is invalid for input of size " + std::to_string(part.numel)};
  return full.part(part.parameter_offset, part.numel);
}

// DeepSpeed#7302 reached the local API of stage 3 alone.
bool DeepSpeedEngine::has_recorded_norm_refreshed(const events::SetGradient& event) const {
  const SetGradientNorm rule = behaviour().set_gradient_norm;
  return rule == SetGradientNorm::refreshed || (rule == SetGradientNorm::local_refreshed && event.local);
}

}  // namespace gradledger
