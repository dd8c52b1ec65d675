#include "sim/frameworks/torch/plugin_reading.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <vector>

#include "sim/scenario/json_reader.h"
#include "sim/scenario/schema.h"
#include "sim/scenario/spelling.h"

namespace gradledger::torch {
namespace {

using nlohmann::json;

// accelerate/utils/dataclasses.py, FullyShardedDataParallelPlugin, at 1.15.0; transformers/training_args.py, _process_fsdp_args, at 5.23.0 and 5.24.0.
constexpr std::array<std::string_view, 14> inert_for_all{"version",
                                                         "activation_checkpointing",
                                                         "activation_checkpointing_offload",
                                                         "cpu_ram_efficient_loading",
                                                         "min_num_params",
                                                         "optim_state_dict_config",
                                                         "param_init_fn",
                                                         "state_dict_config",
                                                         "state_dict_type",
                                                         "sync_module_states",
                                                         "transformer_cls_names_to_wrap",
                                                         "transformer_layer_cls_to_wrap",
                                                         "xla_fsdp_grad_ckpt",
                                                         "xla_fsdp_settings"};

template <class Names>
bool has(const Names& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::optional<bool> plugin_flag(const json& value) {
  if (value.is_boolean()) return value.get<bool>();
  if (!value.is_string()) return std::nullopt;
  const std::string text = lower_case(value.get<std::string>());
  if (text == "true" || text == "1" || text == "yes") return true;
  return text == "false" || text == "0" || text == "no" ? std::optional(false) : std::nullopt;
}

// Empty: none that gradients have here.
std::string named_dtype(const json& written) {
  std::string name = written.is_string() ? written.get<std::string>() : "";
  if (name.starts_with("torch.")) name.erase(0, std::string_view("torch.").size());
  if (name == "float32" || name == "fp32") return "fp32";
  if (name == "bfloat16" || name == "bf16") return "bf16";
  return name == "float16" || name == "fp16" ? "fp16" : "";
}

}  // namespace

UserConfig PluginReading::read(const json& given, const UserConfigHints& hints) {
  if (!given.is_object()) {
    out_.errors.push_back({"", "is no object; expected fsdp_config, or arguments of the wrapper, an object of keys"});
    return std::move(out_);
  }
  for (const auto& [key, value] : given.items()) {
    const std::string pointer = "/" + pointer_token(key), name = key.starts_with("fsdp_") ? key.substr(5) : key;
    if (!value.is_null()) take(name, value, pointer);
  }
  out_.model_dtype = "fp32";
  take_precision(hints.arguments);
  finish(hints);
  take_layers(hints.layers);
  return std::move(out_);
}

// What a policy that wraps the layers of a transformer makes of a model whose layers are known.
void PluginReading::take_layers(const std::vector<std::vector<std::string>>& layers) {
  if (layers.empty() || out_.config.contains("wrap") || out_.config.contains("units")) return;
  out_.config["units"] = layers;
  out_.filled.push_back({"/units", std::to_string(layers.size()) + " layers", "each layer of the model is a module of its own, and the root has the rest"});
}

void PluginReading::take(const std::string& name, const json& value, const std::string& pointer) {
  const json& known = scenario_schema().at(json::json_pointer(keys_.schema))["properties"];
  if (has(inert_for_all, name) || has(keys_.inert, name)) out_.ignored.push_back(pointer);
  else if (has(keys_.taken, name)) take_own(name, value, pointer);
  else if (!known.contains(name)) take_unknown(name, pointer, known);
  else if (auto problem = check_against_part(keys_.schema + "/properties/" + name, value, pointer)) out_.errors.push_back(std::move(*problem));
  else out_.config[name] = value;
}

void PluginReading::take_unknown(const std::string& name, const std::string& pointer, const json& known) {
  std::vector<std::string> names(keys_.taken.begin(), keys_.taken.end());
  names.insert(names.end(), inert_for_all.begin(), inert_for_all.end());
  names.insert(names.end(), keys_.inert.begin(), keys_.inert.end());
  for (const auto& [key, part] : known.items()) names.push_back(key);
  out_.unknown.push_back(pointer + suggestion(name, names));
}

void PluginReading::expected(const json& value, const std::string& pointer, const std::string& what) {
  out_.errors.push_back({pointer, "is " + value.dump() + "; expected " + what});
}

void PluginReading::flag(const char* key, const json& value, const std::string& pointer, std::optional<bool> otherwise) {
  const auto read = plugin_flag(value);
  if (!read) expected(value, pointer, "true or false");
  else if (read != otherwise) out_.config[key] = *read;
}

void PluginReading::wrap(const json& value, const std::string& pointer) {
  const std::string policy = value.is_string() ? lower_case(value.get<std::string>()) : "";
  if (policy == "no_wrap") out_.config["wrap"] = "root";
  else if (policy != "transformer_based_wrap" && policy != "size_based_wrap") expected(value, pointer, "TRANSFORMER_BASED_WRAP, SIZE_BASED_WRAP or NO_WRAP");
}

void PluginReading::precision(const json& value, const std::string& pointer, std::span<const std::string_view> flags) {
  const json both = value.is_string() ? json{{"param_dtype", value}, {"reduce_dtype", value}} : value;
  if (!both.is_object()) return expected(value, pointer, "a dtype, or an object with param_dtype and reduce_dtype");
  json read = json::object();
  for (const auto& [key, part] : both.items()) {
    const std::string here = pointer + "/" + pointer_token(key);
    if (part.is_null()) continue;
    if (has(flags, key) && part.is_boolean()) read[key] = part;
    else if (has(flags, key)) expected(part, here, "true or false");
    else if (key == "output_dtype" || key == "buffer_dtype" || key == "cast_forward_inputs" || key == "cast_root_forward_inputs") out_.ignored.push_back(here);
    else if (key != "param_dtype" && key != "reduce_dtype") out_.unknown.push_back(here + suggestion(key, {"param_dtype", "reduce_dtype"}));
    else if (std::string dtype = named_dtype(part); dtype.empty()) expected(part, here, "fp32, bf16 or fp16");
    else read[key] = std::move(dtype);
  }
  out_.config["mixed_precision"] = std::move(read);
}

void PluginReading::no_model(const json& value, const std::string& pointer, const std::string& of) {
  if (value.is_boolean() || value.is_string() ? plugin_flag(value).value_or(true) : !value.empty()) out_.not_modelled.push_back(pointer + ": " + of);
}

// accelerate/utils/dataclasses.py, set_mixed_precision: weights are fp32, and compute and reduce in the dtype of mixed_precision.
void PluginReading::take_precision(const TrainingArguments& arguments) {
  const bool fp16 = arguments.fp16.value_or(false);
  const std::string dtype = fp16 ? "fp16" : arguments.bf16.value_or(false) ? "bf16" : "";
  if (dtype.empty()) return;
  if (!out_.config.contains("mixed_precision")) {
    out_.config["mixed_precision"] = {{"param_dtype", dtype}, {"reduce_dtype", dtype}};
    out_.filled.push_back({"/mixed_precision", out_.config["mixed_precision"].dump(), dtype + ", as accelerate makes a policy of it"});
  }
  if (!fp16 || out_.config.contains("grad_scaler")) return;
  out_.config["grad_scaler"] = {{"init_scale", 65536}};
  out_.filled.push_back({"/grad_scaler", "{\"init_scale\": 65536}", "fp16: accelerate scales the loss by a GradScaler"});
}

std::vector<ConfigChange> plainer(const json& config, std::initializer_list<const char*> keys, const std::string& reduced_by) {
  std::vector<ConfigChange> out;
  for (const char* key : keys) {
    if (!config.contains(key)) continue;
    json without = config;
    without.erase(key);
    out.push_back({std::string("leave out ") + key, std::string("no ") + key, without});
  }
  if (config.contains("mixed_precision") && config["mixed_precision"].value("reduce_dtype", "fp32") != "fp32") {
    json wide = config;
    wide["mixed_precision"]["reduce_dtype"] = "fp32";
    out.push_back({"reduce in fp32 (" + reduced_by + ")", "reduce_dtype fp32", wide});
  }
  return out;
}

std::string lower_case(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

std::string upper_case(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return text;
}

}  // namespace gradledger::torch
