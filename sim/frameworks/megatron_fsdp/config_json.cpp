#include "sim/frameworks/megatron_fsdp/config_json.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include "sim/numeric/dtype_names.h"
#include "sim/scenario/schema.h"

namespace gradledger::megatron_fsdp {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr std::array<std::string_view, 4> strategies{"no_shard", "optim", "optim_grads", "optim_grads_params"};

constexpr std::array<std::pair<const char*, bool MegatronFsdpConfig::*>, 5> flags{{{"sync_model_each_microbatch", &MegatronFsdpConfig::sync_model_each_microbatch},
                                                                                   {"fully_shard_optimizer", &MegatronFsdpConfig::fully_shard_optimizer},
                                                                                   {"overlap_grad_reduce", &MegatronFsdpConfig::overlap_grad_reduce},
                                                                                   {"average_in_collective", &MegatronFsdpConfig::average_in_collective},
                                                                                   {"calculate_per_token_loss", &MegatronFsdpConfig::calculate_per_token_loss}}};

constexpr std::array<std::pair<const char*, std::optional<Dtype> MixedPrecision::*>, 3> dtypes{
    {{"main_params_dtype", &MixedPrecision::main_params_dtype}, {"main_grads_dtype", &MixedPrecision::main_grads_dtype}, {"grad_comm_dtype", &MixedPrecision::grad_comm_dtype}}};

}  // namespace

std::optional<InputError> take_dtypes(const json& given, const std::string& where, MixedPrecision& into) {
  for (const auto& [key, member] : dtypes) {
    if (!given.contains(key)) continue;
    into.*member = given[key].is_null() ? std::nullopt : floating_dtype_named(given[key].get<std::string>());
    if (!given[key].is_null() && into.*member != Dtype::float32 && into.*member != Dtype::bfloat16)
      return InputError{where + "/" + key, "is " + given[key].dump() + "; expected \"fp32\", \"bf16\" or null"};
  }
  if (into.main_params_dtype.value_or(Dtype::float32) != Dtype::float32)
    return InputError{where + "/main_params_dtype", "is another dtype than fp32, which is not modelled; expected \"fp32\", or null for the parameters' own"};
  return std::nullopt;
}

void put_dtypes(const MixedPrecision& of, ordered_json& into) {
  const MixedPrecision by_default;
  for (const auto& [key, member] : dtypes)
    if (of.*member != by_default.*member) into["mixed_precision"][key] = of.*member ? ordered_json(name_of(*(of.*member))) : ordered_json();
}

Result<MegatronFsdpConfig> megatron_fsdp_config_from_json(const json& object, const std::string& where) {
  if (auto problem = check_against_part("/definitions/megatron_fsdp_config", object, where)) return *problem;
  if (object.contains("units") && object.contains("wrap")) return InputError{where + "/units", "is given, and so is wrap; expected one of the two"};
  MegatronFsdpConfig out;
  if (object.contains("zero_dp_strategy"))
    out.zero_dp_strategy = static_cast<Strategy>(std::find(strategies.begin(), strategies.end(), object["zero_dp_strategy"].get<std::string>()) - strategies.begin());
  out.outer_sharding = object.value("outer_dp_sharding_strategy", "no_shard") == "optim";
  for (const auto& [name, member] : flags) out.*member = object.value(name, out.*member);
  if (object.contains("mixed_precision"))
    if (auto problem = take_dtypes(object["mixed_precision"], where + "/mixed_precision", out.mixed_precision)) return *problem;
  if (object.value("wrap", "layers") == "root") out.wrap = Wrap::root;
  if (object.contains("units")) out.units = object["units"].get<std::vector<std::vector<std::string>>>();
  if (object.contains("mesh")) out.mesh = Mesh{object["mesh"][0], object["mesh"][1]};
  return out;
}

// What is as by default is not said.
std::string MegatronFsdpConfig::json_text() const {
  const MegatronFsdpConfig by_default;
  ordered_json out = ordered_json::object();
  if (zero_dp_strategy != by_default.zero_dp_strategy) out["zero_dp_strategy"] = strategies[static_cast<std::size_t>(zero_dp_strategy)];
  if (outer_sharding) out["outer_dp_sharding_strategy"] = "optim";
  for (const auto& [name, member] : flags)
    if (this->*member != by_default.*member) out[name] = this->*member;
  put_dtypes(mixed_precision, out);
  if (wrap == Wrap::root) out["wrap"] = "root";
  if (units) out["units"] = *units;
  if (mesh) out["mesh"] = {mesh->replicate, mesh->shard};
  return out.dump();
}

}  // namespace gradledger::megatron_fsdp
