#include "sim/frameworks/torch/fsdp2/not_judged.h"

#include <algorithm>
#include <string>
#include <vector>

#include "sim/frameworks/torch/fsdp2/calls.h"
#include "sim/frameworks/torch/fsdp2/modules.h"
#include "sim/frameworks/loop_admission.h"
#include "sim/scenario/script_pointer.h"

namespace gradledger::torch::fully_shard {
namespace {

const char* why_not(const ScriptItem& item, const Fsdp2Config& config) {
  const Call& call = item.event.arguments.as<Call>();
  switch (call.method) {
    case Method::set_requires_all_reduce: return config.mesh ? nullptr : "changes nothing without a mesh of two dimensions; expected mesh in /engine/config";
    case Method::set_reduce_scatter_unused_params:
    case Method::set_force_sum_reduction_for_comms:
    case Method::set_gradient_divide_factor: return "is replayed from recordings and not judged; expected the option of the same name in /engine/config";
    case Method::set_manual_backward_finalization: return config.optimizer_in_backward ? "is not modelled beside optimizer_in_backward; expected one of the two" : nullptr;
    case Method::set_requires_gradient_sync:
    case Method::set_is_last_backward:
    case Method::set_reshard_after_forward:
    case Method::set_reshard_after_backward:
    case Method::unshard:
    case Method::reshard:
    case Method::reset_iter_state:
    case Method::finalize_backward:
    case Method::wait_for_gradient_reduction: return nullptr;
  }
  return nullptr;
}

std::optional<InputError> of_items(const std::vector<ScriptItem>& items, const std::string& where, const Fsdp2Config& config) {
  for (std::size_t i = 0; i < items.size(); ++i) {
    const std::string here = where + "/" + std::to_string(i);
    const ScriptItem& item = items[i];
    if (!item.order.empty()) return InputError{here + "/backward/order", "is that of the modules with fully_shard; expected root_parameters_last in /engine/config, or nothing"};
    if (item.kind == ScriptKind::of_framework)
      if (const char* why = why_not(item, config)) return InputError{here + "/event", why};
    if (auto problem = of_items(item.items, pointer_of_items(item, here), config)) return problem;
  }
  return std::nullopt;
}

// Neither of the two holds all values of the other.
std::optional<InputError> dtypes_problem(const Scenario& scenario, const MixedPrecision& given) {
  const std::vector<Dtype> all = computed_dtypes(scenario, given);
  const auto has = [&](Dtype dtype) { return std::find(all.begin(), all.end(), dtype) != all.end(); };
  if (given.param_dtype_override_fn.empty() || !has(Dtype::bfloat16) || !has(Dtype::float16)) return std::nullopt;
  return InputError{"/engine/config/mixed_precision/param_dtype_override_fn",
                    "has some parameters compute in fp16 and others in bf16, for which there is no contract; expected fp32 among the two"};
}

}  // namespace

std::optional<InputError> not_judged(const Scenario& scenario, const Fsdp2Config& config) {
  if (config.optimizer_in_backward)
    if (auto problem = inside_backwards_problem(scenario)) return problem;
  if (auto problem = dtypes_problem(scenario, config.mixed_precision)) return problem;
  return of_items(scenario.script, "/script", config);
}

}  // namespace gradledger::torch::fully_shard
