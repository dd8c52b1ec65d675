#include "sim/frameworks/torch/loop_admission.h"

#include <string_view>

#include "sim/scenario/factor.h"

namespace gradledger::torch {
namespace {

// The release that the wrappers were read of and recorded with.
constexpr std::string_view modelled = "2.13.0";

}  // namespace

std::optional<InputError> model_problem(const Scenario& s, const std::string& wrapper) {
  const std::string not_modelled = "is not modelled with " + wrapper;
  for (std::uint32_t p = 0; p < s.parameters.size(); ++p) {
    const Parameter& parameter = s.parameters[p];
    const std::string where = "/parameters/" + std::to_string(p);
    if (parameter.tied_to) return InputError{where + "/tied_to", not_modelled};
    if (parameter.expert) return InputError{where + "/expert", not_modelled};
    if (parameter.on_side_stream) return InputError{where + "/on_side_stream", not_modelled};
    const OptimizerConfig optimizer = s.engine.optimizer_of(p);
    if (s.dtype_of(p) == Dtype::float32) continue;
    if (optimizer.type != OptimizerType::sgd || optimizer.weight_decay != 0 || !exact_factor(optimizer.learning_rate))
      return InputError{"/engine/optimizer", "steps on weights that are not fp32, which is modelled for SGD without weight decay, with a learning rate of " + exact_factors()};
  }
  if (s.engine.pipeline_stages > 1) return InputError{"/engine/pipeline_stages", not_modelled};
  if (s.engine.sequence_parallel_size > 1) return InputError{"/engine/sequence_parallel_size", not_modelled};
  if (s.engine.expert_parallel_size > 1) return InputError{"/engine/expert_parallel_size", not_modelled};
  return std::nullopt;
}

std::optional<InputError> release_problem(const AsOf& as_of, const std::string& wrapper) {
  if (!as_of.switches.empty()) return InputError{"/engine/as_of", "has switches, which " + wrapper + " has none of; expected a release"};
  if (as_of.base == "head" || as_of.base == modelled) return std::nullopt;
  return InputError{"/engine/as_of", "is \"" + as_of.base + "\"; of PyTorch one release is modelled: expected \"" + std::string(modelled) + "\", or \"head\", which is the same"};
}

// "2.13.0+cpu" is 2.13.0.
AsOf installed_release(const std::map<std::string, std::string>& releases) {
  const auto found = releases.find("torch");
  if (found != releases.end() && found->second.substr(0, found->second.find('+')) == modelled) return AsOf{std::string(modelled), {}};
  return AsOf{};
}

}  // namespace gradledger::torch
