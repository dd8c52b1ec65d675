#include "sim/frameworks/torch/fsdp2/contract.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "sim/frameworks/loop_contract.h"
#include "sim/frameworks/torch/fsdp2/calls.h"
#include "sim/frameworks/torch/fsdp2/modules.h"
#include "sim/frameworks/torch/scaler_contract.h"

namespace gradledger::torch::fully_shard {
namespace {

// Exact where the factor has a power of two below 65537 as its denominator.
Rational rational(double factor) {
  std::int64_t denominator = 1;
  while (denominator < 65536 && std::nearbyint(factor * static_cast<double>(denominator)) != factor * static_cast<double>(denominator)) denominator *= 2;
  return {static_cast<std::int64_t>(std::llround(factor * static_cast<double>(denominator))), denominator};
}

// Whether the loop has modules reduce on their own.
bool reduces_in_parts(const std::vector<ScriptItem>& items) {
  return std::any_of(items.begin(), items.end(), [](const ScriptItem& item) {
    if (item.kind != ScriptKind::of_framework) return reduces_in_parts(item.items);
    const Call& call = item.event.arguments.as<Call>();
    return (call.method == Method::set_requires_gradient_sync || call.method == Method::set_requires_all_reduce) && of_a_part(call);
  });
}

// Whether a backward reduces some modules and leaves others to the loop, which ends it. A block of repeated events is gone through twice: its end may set what
// its beginning meets.
class PartlyFinalized {
 public:
  bool in(const std::vector<ScriptItem>& items) {
    return std::any_of(items.begin(), items.end(), [&](const ScriptItem& item) { return in(item); });
  }

 private:
  bool in(const ScriptItem& item) {
    switch (item.kind) {
      case ScriptKind::backward: return by_hand_ && reduces_;
      case ScriptKind::repeat: return in(item.items) || (item.times > 1 && in(item.items));
      case ScriptKind::no_sync: {
        if (item.ranks.empty()) reduces_ = false;
        const bool inside = in(item.items);
        reduces_ = true;
        return inside;
      }
      case ScriptKind::of_framework: {
        const Call& call = item.event.arguments.as<Call>();
        if (call.method == Method::set_manual_backward_finalization && !call.unit) by_hand_ = call.flag() || (by_hand_ && !item.ranks.empty());
        if (call.method == Method::set_requires_gradient_sync && !of_a_part(call)) reduces_ = call.flag() || (reduces_ && !item.ranks.empty());
        return false;
      }
      default: return false;
    }
  }

  bool by_hand_ = false, reduces_ = true;
};

// What gradients are computed in, where the policy says anything about it. A contract has one dtype for all: the narrower of two.
std::optional<Dtype> computed_in(const Scenario& s, const MixedPrecision& given) {
  if (given.param_dtype_override_fn.empty()) return given.param_dtype;
  const std::vector<Dtype> all = computed_dtypes(s, given);
  const auto least = std::min_element(all.begin(), all.end(), [](Dtype one, Dtype other) { return size_of(one) < size_of(other); });
  return least == all.end() ? given.param_dtype : *least;
}

void state_dtypes(const Scenario& s, const Fsdp2Config& config, const Behaviour& behaviour, Contract& out) {
  const MixedPrecision& given = config.mixed_precision;
  const std::optional<Dtype> computed = out.computed = computed_in(s, given);
  out.accumulation = out.wire = s.model_dtype;
  if (!given.param_dtype && !given.reduce_dtype && !config.grad_dtype) return;
  if (behaviour.gradient_dtype == GradientDtype::of_parameter) {
    // Own sums are in the dtype of the reduction, those of shards in the one that the parameter's gradient has.
    out.accumulation = config.grad_dtype.value_or(s.model_dtype);
    out.wire = given.reduce_dtype.value_or(out.accumulation);
    if (size_of(out.wire) < size_of(out.accumulation)) out.accumulation = out.wire;
    // Each gradient is cast to the sum's dtype before it is added.
    if (size_of(out.wire) < size_of(computed.value_or(s.model_dtype))) out.computed = out.wire;
    return;
  }
  out.accumulation = given.param_dtype.value_or(s.model_dtype);
  out.wire = given.reduce_dtype.value_or(out.accumulation);
  // No gradient is wider than its parameter.
  if (size_of(s.model_dtype) < size_of(out.accumulation)) out.accumulation = s.model_dtype;
  // Tensor.grad_dtype: what a leaf's gradient is accumulated in.
  if (config.grad_dtype) out.accumulation = *config.grad_dtype;
}

}  // namespace

Contract fsdp2_contract(const Scenario& s, const Fsdp2Config& config, const Behaviour& behaviour) {
  Contract out = loop_contract(s);
  out.boundary.inside_backwards = config.optimizer_in_backward;
  out.replicates_reduced = false;
  out.mixes_own_and_averaged = false;
  out.steps_own_copies = false;
  out.block_is_a_switch = true;
  out.reduces_in_parts = reduces_in_parts(s.script) || PartlyFinalized().in(s.script);
  lay_out(s, out);
  state_dtypes(s, config, behaviour, out);
  if (config.gradient_divide_factor) out.average_divisor = rational(*config.gradient_divide_factor);
  add_scaler(config.grad_scaler, out);
  return out;
}

}  // namespace gradledger::torch::fully_shard
