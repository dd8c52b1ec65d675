// buffered_allreduce_fallback: how stage 0 and BF16_Optimizer average gradients at a boundary. Every rank ends with the whole result.
#pragma once

#include <vector>

#include "sim/engine/tensors.h"
#include "sim/frameworks/deepspeed/config.h"
#include "sim/scenario/layout.h"

namespace gradledger {

inline constexpr std::uint64_t fallback_pack_elements = 500'000'000;

// Packs tensors of one dtype until the pack exceeds the limit; each pack is flattened, cast to the communication dtype, all-reduced with
// the pre- or postscale factors around it, cast back and copied back.
// engine.py: allreduce_no_retain, allreduce_bucket, at 0.19.7
inline void fallback_all_reduce(ProgramWriter& w, TensorTable& tensors, const DeepSpeedConfig& config, bool averages, double divisor, Dtype communication_dtype,
                                const std::vector<Slice>& gradients, const ProcessGroup& group) {
  std::size_t first = 0;
  while (first < gradients.size()) {
    std::size_t last = first;
    std::uint64_t total = 0;
    while (last < gradients.size() && total <= fallback_pack_elements) total += gradients[last++].numel;

    const Dtype dtype = w.declaration(gradients[first].buffer).dtype;
    Tensor flat = tensors.allocate(w, "flattened_gradients", dtype, total);
    std::uint64_t at = 0;
    for (std::size_t i = first; i < last; ++i) {
      w.copy(flat.slice.part(at, gradients[i].numel), gradients[i]);
      at += gradients[i].numel;
    }
    Tensor cast;
    Slice wire = flat.slice;
    if (communication_dtype != dtype) {
      cast = tensors.allocate(w, "gradients_in_communication_dtype", communication_dtype, total);
      wire = cast.slice;
      w.copy(wire, flat.slice);
    }
    const CollectiveCall call{.kind = CollectiveKind::all_reduce, .group = group.id, .communicator = group.communicator, .input = wire, .output = wire};
    const double predivide = config.gradient_predivide_factor;
    if (!averages) {
      w.collective(call);
    } else if (config.prescale_gradients) {
      w.multiply(wire, 1.0 / divisor);
      w.collective(call);
    } else {
      if (predivide != 1.0) w.multiply(wire, 1.0 / predivide);
      w.collective(call);
      if (predivide != divisor) w.multiply(wire, predivide / divisor);
    }
    if (cast.defined()) w.copy(flat.slice, wire);
    at = 0;
    for (std::size_t i = first; i < last; ++i) {
      w.copy(gradients[i], flat.slice.part(at, gradients[i].numel));
      at += gradients[i].numel;
    }
    tensors.drop(w, cast);
    tensors.drop(w, flat);
    first = last;
  }
}

}  // namespace gradledger
