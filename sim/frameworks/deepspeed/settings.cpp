#include "sim/frameworks/deepspeed/settings.h"

#include <algorithm>

#include "sim/frameworks/deepspeed/behaviour.h"
#include "sim/frameworks/watched_switch.h"

namespace gradledger {

bool documents(const Scenario& scenario, Change change) {
  const auto point = point_named(scenario.engine.as_of.base, "/engine/as_of");
  expects(point.ok(), "a scenario whose as_of was not checked");
  SwitchRecorder::note(static_cast<SwitchPlace>(switches().size() + static_cast<std::size_t>(change)));
  return point->contains(change);
}

double gradient_clipping_of(const Scenario& scenario) {
  if (scenario.engine.optimizer.type == OptimizerType::muon) return 0.0;
  if (const auto& given = deepspeed_config(scenario).gradient_clipping) return *given;
  return documents(scenario, Change::pr8068) ? 1.0 : 0.0;
}

// Until DeepSpeed#7515 bf16 without ZeRO had a wrapper of its own, which accumulates in fp32.
Dtype grad_accum_dtype_of(const Scenario& scenario) {
  const DeepSpeedConfig& config = deepspeed_config(scenario);
  if (config.grad_accum_dtype) return *config.grad_accum_dtype;
  if (scenario.model_dtype != Dtype::bfloat16 || config.zero.stage > 0) return scenario.model_dtype;
  return documents(scenario, Change::pr7515) ? scenario.model_dtype : Dtype::float32;
}

// engine.py: _configure_distributed_model, at 0.19.8
Dtype communication_dtype_of(const Scenario& scenario) {
  const DeepSpeedConfig& config = deepspeed_config(scenario);
  if (scenario.engine.sequence_parallel_size > 1) return config.seq_parallel_communication_data_type.value_or(Dtype::float32);
  return config.communication_data_type.value_or(scenario.model_dtype);
}

// original_muon.py: MuonWithAuxAdam.__init__, at 0.18.7 and 0.19.8
std::vector<RankGroup> sorted_groups(const Scenario& scenario, std::uint32_t rank) {
  std::vector<RankGroup> out = optimizer_groups(scenario, rank);
  for (RankGroup& group : out)
    if (group.optimizer.type == OptimizerType::muon)
      std::stable_sort(group.parameters.begin(), group.parameters.end(),
                       [&](std::uint32_t a, std::uint32_t b) { return scenario.parameters[a].numel > scenario.parameters[b].numel; });
  return out;
}

}  // namespace gradledger
