#include "sim/frameworks/torch/fsdp2/config_json.h"

#include <array>
#include <cmath>
#include <utility>

#include "sim/numeric/dtype_names.h"
#include "sim/scenario/json_reader.h"
#include "sim/scenario/schema.h"

namespace gradledger::torch::fully_shard {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr std::array<std::pair<const char*, bool Fsdp2Config::*>, 8> flags{{{"offload", &Fsdp2Config::offload},
                                                                            {"force_sum_reduction_for_comms", &Fsdp2Config::force_sum_reduction_for_comms},
                                                                            {"reduce_scatter_unused_params", &Fsdp2Config::reduce_scatter_unused_params},
                                                                            {"optimizer_in_backward", &Fsdp2Config::optimizer_in_backward},
                                                                            {"clips_a_used_up_generator", &Fsdp2Config::clips_a_used_up_generator},
                                                                            {"calls_unused_units", &Fsdp2Config::calls_unused_units},
                                                                            {"input_requires_grad", &Fsdp2Config::input_requires_grad},
                                                                            {"root_parameters_last", &Fsdp2Config::root_parameters_last}}};

constexpr std::array<std::pair<const char*, std::optional<Dtype> MixedPrecision::*>, 2> dtypes{
    {{"param_dtype", &MixedPrecision::param_dtype}, {"reduce_dtype", &MixedPrecision::reduce_dtype}}};

constexpr const char* expected_dtype = "; expected \"fp32\", \"bf16\" or \"fp16\"";

std::optional<InputError> take_dtypes(const json& given, const std::string& where, MixedPrecision& into) {
  for (const auto& [key, member] : dtypes) {
    if (!given.contains(key)) continue;
    into.*member = floating_dtype_named(given[key].get<std::string>());
    if (!(into.*member)) return InputError{where + "/" + key, "is " + given[key].dump() + expected_dtype};
  }
  const std::string function = "param_dtype_override_fn";
  const json said = given.value(function, json::object());
  for (const auto& [name, value] : said.items()) {
    const auto dtype = floating_dtype_named(value.get<std::string>());
    if (!dtype) return InputError{where + "/" + function + "/" + pointer_token(name), "is " + value.dump() + expected_dtype};
    into.param_dtype_override_fn[name] = *dtype;
  }
  return std::nullopt;
}

ordered_json to_json(const MixedPrecision& given) {
  ordered_json out = ordered_json::object();
  for (const auto& [key, member] : dtypes)
    if (given.*member) out[key] = name_of(*(given.*member));
  for (const auto& [name, dtype] : given.param_dtype_override_fn) out["param_dtype_override_fn"][name] = name_of(dtype);
  return out;
}

// What is due is said in whole numbers: a factor that is none of their quotients would be another in the contract than in the engine.
bool can_be_stated(double factor) { return std::nearbyint(factor * 65536) == factor * 65536; }

}  // namespace

Result<Fsdp2Config> fsdp2_config_from_json(const json& object, const std::string& where) {
  if (auto problem = check_against_part("/definitions/fsdp2_config", object, where)) return *problem;
  if (object.contains("units") && object.contains("wrap")) return InputError{where + "/units", "is given, and so is wrap; expected one of the two"};
  Fsdp2Config out;
  if (object.contains("reshard_after_forward")) out.reshard_after_forward = object["reshard_after_forward"].get<bool>();
  if (object.contains("mixed_precision"))
    if (auto problem = take_dtypes(object["mixed_precision"], where + "/mixed_precision", out.mixed_precision)) return *problem;
  if (object.contains("grad_dtype")) {
    out.grad_dtype = floating_dtype_named(object["grad_dtype"].get<std::string>());
    if (!out.grad_dtype) return InputError{where + "/grad_dtype", "is " + object["grad_dtype"].dump() + expected_dtype};
  }
  if (object.value("wrap", "layers") == "root") out.wrap = Wrap::root;
  if (object.contains("units")) out.units = object["units"].get<std::vector<std::vector<std::string>>>();
  out.nested = object.value("nested", out.nested);
  out.plain = object.value("plain", out.plain);
  if (object.contains("mesh")) out.mesh = Mesh{object["mesh"][0], object["mesh"][1]};
  if (object.contains("rows")) out.rows = object["rows"].get<std::map<std::string, std::uint64_t>>();
  if (object.contains("gradient_divide_factor")) out.gradient_divide_factor = object["gradient_divide_factor"].get<double>();
  if (out.gradient_divide_factor && !can_be_stated(*out.gradient_divide_factor))
    return InputError{where + "/gradient_divide_factor",
                      "is " + object["gradient_divide_factor"].dump() + "; expected a multiple of 1/65536, which a weight can be divided by exactly"};
  for (const auto& [name, member] : flags) out.*member = object.value(name, false);
  if (!object.contains("grad_scaler")) return out;
  auto scaler = grad_scaler_from_json(object["grad_scaler"], where + "/grad_scaler");
  if (!scaler) return scaler.error();
  out.grad_scaler = std::move(scaler).value();
  return out;
}

// Drivers are told this text: what is not given is not said.
ordered_json fsdp2_config_to_json(const Fsdp2Config& config) {
  ordered_json out = ordered_json::object();
  if (config.reshard_after_forward) out["reshard_after_forward"] = *config.reshard_after_forward;
  if (config.mixed_precision != MixedPrecision{}) out["mixed_precision"] = to_json(config.mixed_precision);
  if (config.grad_dtype) out["grad_dtype"] = name_of(*config.grad_dtype);
  if (config.wrap == Wrap::root) out["wrap"] = "root";
  if (config.units) out["units"] = *config.units;
  if (!config.nested.empty()) out["nested"] = config.nested;
  if (!config.plain.empty()) out["plain"] = config.plain;
  if (config.mesh) out["mesh"] = {config.mesh->replicate, config.mesh->shard};
  if (!config.rows.empty()) out["rows"] = config.rows;
  if (config.gradient_divide_factor) out["gradient_divide_factor"] = *config.gradient_divide_factor;
  for (const auto& [name, member] : flags)
    if (config.*member) out[name] = true;
  if (config.grad_scaler) out["grad_scaler"] = grad_scaler_to_json(*config.grad_scaler);
  return out;
}

std::string Fsdp2Config::json_text() const { return fsdp2_config_to_json(*this).dump(); }

}  // namespace gradledger::torch::fully_shard
