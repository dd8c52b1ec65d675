#include "sim/frameworks/torch/fsdp2/user_config.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <string>
#include <vector>

#include "sim/scenario/json_reader.h"
#include "sim/scenario/schema.h"
#include "sim/scenario/spelling.h"

namespace gradledger::torch {
namespace {

using nlohmann::json;

// accelerate/utils/dataclasses.py, FullyShardedDataParallelPlugin, at 1.15.0; transformers/training_args.py, _process_fsdp_args, at 5.23.0.
constexpr std::array plugin_inert{"version",
                                  "activation_checkpointing",
                                  "activation_checkpointing_offload",
                                  "backward_prefetch",
                                  "cpu_ram_efficient_loading",
                                  "forward_prefetch",
                                  "limit_all_gathers",
                                  "min_num_params",
                                  "optim_state_dict_config",
                                  "param_init_fn",
                                  "state_dict_config",
                                  "state_dict_type",
                                  "sync_module_states",
                                  "transformer_cls_names_to_wrap",
                                  "transformer_layer_cls_to_wrap",
                                  "use_orig_params",
                                  "xla_fsdp_grad_ckpt",
                                  "xla_fsdp_settings"};
constexpr std::array plugin_taken{"reshard_after_forward", "offload_params", "cpu_offload", "auto_wrap_policy", "mixed_precision_policy", "sharding_strategy",
                                  "ignored_modules",       "ignored_params", "xla",         "xla_fsdp_v2"};

const std::string fsdp2_schema = "/definitions/fsdp2_config";

std::string lower_case(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

// true, "true": files of accelerate have both.
std::optional<bool> plugin_flag(const json& value) {
  if (value.is_boolean()) return value.get<bool>();
  if (!value.is_string()) return std::nullopt;
  const std::string text = lower_case(value.get<std::string>());
  if (text == "true" || text == "1" || text == "yes") return true;
  return text == "false" || text == "0" || text == "no" ? std::optional(false) : std::nullopt;
}

class Fsdp2Reading {
 public:
  UserConfig read(const json& given, const TrainingArguments& arguments) {
    if (!given.is_object()) {
      out_.errors.push_back({"", "is no object; expected fsdp_config, or options of fully_shard, an object of keys"});
      return std::move(out_);
    }
    for (const auto& [key, value] : given.items()) {
      const std::string pointer = "/" + pointer_token(key), name = key.starts_with("fsdp_") ? key.substr(5) : key;
      if (!value.is_null()) take(name, value, pointer);
    }
    out_.model_dtype = "fp32";
    take_precision(arguments);
    return std::move(out_);
  }

 private:
  void take(const std::string& name, const json& value, const std::string& pointer) {
    const json& known = scenario_schema().at(json::json_pointer(fsdp2_schema))["properties"];
    if (std::find(plugin_inert.begin(), plugin_inert.end(), name) != plugin_inert.end()) out_.ignored.push_back(pointer);
    else if (std::find(plugin_taken.begin(), plugin_taken.end(), name) != plugin_taken.end()) of_plugin(name, value, pointer);
    else if (!known.contains(name)) unknown(name, pointer, known);
    else if (auto problem = check_against_part(fsdp2_schema + "/properties/" + name, value, pointer)) out_.errors.push_back(std::move(*problem));
    else out_.config[name] = value;
  }

  void unknown(const std::string& name, const std::string& pointer, const json& known) {
    std::vector<std::string> names(plugin_taken.begin(), plugin_taken.end());
    names.insert(names.end(), plugin_inert.begin(), plugin_inert.end());
    for (const auto& [key, part] : known.items()) names.push_back(key);
    out_.unknown.push_back(pointer + suggestion(name, names));
  }

  void of_plugin(const std::string& name, const json& value, const std::string& pointer) {
    if (name == "reshard_after_forward") flag("reshard_after_forward", value, pointer);
    else if (name == "offload_params" || name == "cpu_offload") flag("offload", value, pointer);
    else if (name == "auto_wrap_policy") wrap(value, pointer);
    else if (name == "mixed_precision_policy") policy(value, pointer);
    else if (name == "sharding_strategy") out_.notes.push_back("sharding_strategy is FSDP1's; with version 2 reshard_after_forward stands in its place.");
    else if (name.starts_with("xla") ? plugin_flag(value).value_or(true) : !value.empty())
      out_.not_modelled.push_back(pointer + (name.starts_with("xla") ? ": FSDP of PyTorch/XLA" : ": parameters that fully_shard leaves alone"));
  }

  void flag(const char* key, const json& value, const std::string& pointer) {
    const auto read = plugin_flag(value);
    if (!read) out_.errors.push_back({pointer, "is " + value.dump() + "; expected true or false"});
    else if (std::string_view(key) != "offload" || *read) out_.config[key] = *read;
  }

  void wrap(const json& value, const std::string& pointer) {
    const std::string policy = value.is_string() ? lower_case(value.get<std::string>()) : "";
    if (policy == "no_wrap") out_.config["wrap"] = "root";
    else if (policy != "transformer_based_wrap" && policy != "size_based_wrap")
      out_.errors.push_back({pointer, "is " + value.dump() + "; expected TRANSFORMER_BASED_WRAP, SIZE_BASED_WRAP or NO_WRAP"});
  }

  // A dtype for both, or an object of them.
  void policy(const json& value, const std::string& pointer) {
    const json both = value.is_string() ? json{{"param_dtype", value}, {"reduce_dtype", value}} : value;
    if (!both.is_object()) return out_.errors.push_back({pointer, "is " + value.dump() + "; expected a dtype, or an object with param_dtype and reduce_dtype"});
    json read = json::object();
    for (const auto& [key, dtype] : both.items()) {
      if (key == "output_dtype" || key == "cast_forward_inputs") out_.ignored.push_back(pointer + "/" + pointer_token(key));
      else if (key != "param_dtype" && key != "reduce_dtype") out_.unknown.push_back(pointer + "/" + pointer_token(key) + suggestion(key, {"param_dtype", "reduce_dtype"}));
      else if (!dtype.is_string()) out_.errors.push_back({pointer + "/" + key, "is " + dtype.dump() + "; expected a dtype"});
      else
        read[key] = dtype == "float32" || dtype == "torch.float32" ? "fp32" : dtype == "bfloat16" || dtype == "torch.bfloat16" ? "bf16" : dtype == "torch.float16" ? "fp16" : dtype;
    }
    out_.config["mixed_precision"] = std::move(read);
  }

  // accelerate, fsdp2_prepare_model and set_mixed_precision: weights are fp32, and compute and reduce in the dtype of mixed_precision.
  void take_precision(const TrainingArguments& arguments) {
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

  UserConfig out_;
};

class Fsdp2UserConfig final : public UserConfigReader {
 public:
  UserConfig read(const json& given, const UserConfigHints& hints) const override { return Fsdp2Reading().read(given, hints.arguments); }

  // The loop says where a window ends.
  void count_windows(json&, std::uint32_t) const override {}
  std::uint32_t counted_window(const json&) const override { return 1; }

  std::vector<ConfigChange> changes(const json& config) const override {
    std::vector<ConfigChange> out;
    for (const char* key : {"offload", "mixed_precision", "gradient_divide_factor", "force_sum_reduction_for_comms", "reshard_after_forward"}) {
      if (!config.contains(key)) continue;
      json without = config;
      without.erase(key);
      out.push_back({std::string("leave out ") + key, std::string("no ") + key, without});
    }
    if (config.contains("mixed_precision") && config["mixed_precision"].value("reduce_dtype", "fp32") != "fp32") {
      json wide = config;
      wide["mixed_precision"]["reduce_dtype"] = "fp32";
      out.push_back({"reduce in fp32 (mixed_precision_policy.reduce_dtype)", "reduce_dtype fp32", wide});
    }
    if (!config.value("reduce_scatter_unused_params", false)) {
      json unused = config;
      unused["reduce_scatter_unused_params"] = true;
      out.push_back({"call set_reduce_scatter_unused_params(True)", "reduce_scatter_unused_params", unused});
    }
    return out;
  }
};

}  // namespace

const UserConfigReader& fsdp2_user_config_reader() {
  static const Fsdp2UserConfig it;
  return it;
}

}  // namespace gradledger::torch
