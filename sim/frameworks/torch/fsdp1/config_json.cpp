#include "sim/frameworks/torch/fsdp1/config_json.h"

#include <array>
#include <utility>

#include "sim/numeric/dtype_names.h"
#include "sim/scenario/schema.h"

namespace gradledger::torch::flat_sharded {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr std::array<std::pair<const char*, Strategy>, 5> strategies{{{"FULL_SHARD", Strategy::full_shard},
                                                                      {"SHARD_GRAD_OP", Strategy::shard_grad_op},
                                                                      {"NO_SHARD", Strategy::no_shard},
                                                                      {"HYBRID_SHARD", Strategy::hybrid_shard},
                                                                      {"_HYBRID_SHARD_ZERO2", Strategy::hybrid_shard_zero2}}};

constexpr std::array<std::pair<const char*, bool Fsdp1Config::*>, 7> flags{{{"use_orig_params", &Fsdp1Config::use_orig_params},
                                                                            {"offload", &Fsdp1Config::offload},
                                                                            {"computes_on_cpu", &Fsdp1Config::computes_on_cpu},
                                                                            {"forward_prefetch", &Fsdp1Config::forward_prefetch},
                                                                            {"limit_all_gathers", &Fsdp1Config::limit_all_gathers},
                                                                            {"plain_grad_scaler", &Fsdp1Config::plain_grad_scaler},
                                                                            {"calls_unused_units", &Fsdp1Config::calls_unused_units}}};

constexpr std::array<std::pair<const char*, std::optional<Dtype> MixedPrecision::*>, 2> dtypes{
    {{"param_dtype", &MixedPrecision::param_dtype}, {"reduce_dtype", &MixedPrecision::reduce_dtype}}};

std::optional<InputError> take_precision(const json& given, const std::string& where, MixedPrecision& into) {
  for (const auto& [key, member] : dtypes) {
    if (!given.contains(key)) continue;
    into.*member = floating_dtype_named(given[key].get<std::string>());
    if (!(into.*member)) return InputError{where + "/" + key, "is " + given[key].dump() + "; expected \"fp32\", \"bf16\" or \"fp16\""};
  }
  into.keep_low_precision_grads = given.value("keep_low_precision_grads", false);
  return std::nullopt;
}

// What one option means without another.
std::optional<InputError> misfit(const json& object, const Fsdp1Config& config, const std::string& where) {
  if (object.contains("units") && object.contains("wrap")) return InputError{where + "/units", "is given, and so is wrap; expected one of the two"};
  if (config.hybrid() && !config.mesh) return InputError{where + "/sharding_strategy", "shards within a part of the ranks; expected mesh beside it, which says which part"};
  if (!config.hybrid() && config.mesh) return InputError{where + "/mesh", "is given, and the strategy is no hybrid one; expected HYBRID_SHARD or _HYBRID_SHARD_ZERO2 beside it"};
  if (config.plain_grad_scaler && !config.grad_scaler) return InputError{where + "/plain_grad_scaler", "says which scaler there is; expected grad_scaler beside it"};
  if (config.mixed_precision.keep_low_precision_grads && !config.mixed_precision.param_dtype)
    return InputError{where + "/mixed_precision/keep_low_precision_grads", "keeps the dtype in which parameters compute; expected param_dtype beside it"};
  return std::nullopt;
}

}  // namespace

Result<Fsdp1Config> fsdp1_config_from_json(const json& object, const std::string& where) {
  if (auto problem = check_against_part("/definitions/fsdp1_config", object, where)) return *problem;
  Fsdp1Config out;
  for (const auto& [name, strategy] : strategies)
    if (object.value("sharding_strategy", "FULL_SHARD") == name) out.strategy = strategy;
  if (object.contains("mixed_precision"))
    if (auto problem = take_precision(object["mixed_precision"], where + "/mixed_precision", out.mixed_precision)) return *problem;
  if (object.value("wrap", "layers") == "root") out.wrap = Wrap::root;
  if (object.contains("units")) out.units = object["units"].get<std::vector<std::vector<std::string>>>();
  if (object.contains("mesh")) out.mesh = Mesh{object["mesh"][0], object["mesh"][1]};
  for (const auto& [name, member] : flags) out.*member = object.value(name, Fsdp1Config{}.*member);
  const std::string prefetch = object.value("backward_prefetch", "BACKWARD_PRE");
  out.backward_prefetch = prefetch == "BACKWARD_PRE" ? BackwardPrefetch::pre : prefetch == "BACKWARD_POST" ? BackwardPrefetch::post : BackwardPrefetch::none;
  if (object.contains("grad_scaler")) {
    auto scaler = grad_scaler_from_json(object["grad_scaler"], where + "/grad_scaler");
    if (!scaler) return scaler.error();
    out.grad_scaler = std::move(scaler).value();
  }
  if (auto problem = misfit(object, out, where)) return *problem;
  return out;
}

// Drivers are told this text: what is not given is not said.
ordered_json fsdp1_config_to_json(const Fsdp1Config& config) {
  ordered_json out = ordered_json::object();
  for (const auto& [name, strategy] : strategies)
    if (config.strategy == strategy && strategy != Strategy::full_shard) out["sharding_strategy"] = name;
  for (const auto& [key, member] : dtypes)
    if (config.mixed_precision.*member) out["mixed_precision"][key] = name_of(*(config.mixed_precision.*member));
  if (config.mixed_precision.keep_low_precision_grads) out["mixed_precision"]["keep_low_precision_grads"] = true;
  if (config.wrap == Wrap::root) out["wrap"] = "root";
  if (config.units) out["units"] = *config.units;
  if (config.mesh) out["mesh"] = {config.mesh->replicate, config.mesh->shard};
  for (const auto& [name, member] : flags)
    if (config.*member != Fsdp1Config{}.*member) out[name] = config.*member;
  if (config.backward_prefetch == BackwardPrefetch::post) out["backward_prefetch"] = "BACKWARD_POST";
  if (config.backward_prefetch == BackwardPrefetch::none) out["backward_prefetch"] = "none";
  if (config.grad_scaler) out["grad_scaler"] = grad_scaler_to_json(*config.grad_scaler);
  return out;
}

std::string Fsdp1Config::json_text() const { return fsdp1_config_to_json(*this).dump(); }

}  // namespace gradledger::torch::flat_sharded
