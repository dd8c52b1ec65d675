#include "sim/frameworks/megatron_fsdp/user_config.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "sim/scenario/json_reader.h"
#include "sim/scenario/schema.h"
#include "sim/scenario/spelling.h"

namespace gradledger::megatron_fsdp {
namespace {

using nlohmann::json;

constexpr std::string_view schema = "/definitions/megatron_fsdp_config";

// By their numbers, as fully_shard takes them too.
constexpr std::array<std::string_view, 4> strategies{"no_shard", "optim", "optim_grads", "optim_grads_params"};

// megatron_fsdp/fully_shard.py, fully_shard, at 0.1.0 to 0.6.1.
constexpr std::array<std::string_view, 19> inert{"module",
                                                 "optimizer",
                                                 "device",
                                                 "dp_shard_dim",
                                                 "tp_dim",
                                                 "fsdp_group_ag",
                                                 "fsdp_unit_modules",
                                                 "init_model_with_meta_device",
                                                 "overlap_param_gather",
                                                 "preproc_state_dict_for_dcp_ckpt",
                                                 "check_for_nan_in_grad",
                                                 "report_nan_in_param_grad",
                                                 "disable_bucketing",
                                                 "keep_fp8_transpose_cache",
                                                 "nccl_ub",
                                                 "disable_symmetric_registration",
                                                 "enable_fine_grained_param_gather",
                                                 "cuda_graph_mode",
                                                 "device_mesh"};
struct NotModelled {
  std::string_view name, what;
};
constexpr NotModelled without_model[] = {{"dp_outer_dim", "ranks outside of a shard, whose groups a file does not say: write a scenario with mesh"},
                                         {"hybrid_fsdp_group", "ranks outside of a shard, whose groups a file does not say: write a scenario with mesh"},
                                         {"calculate_per_token_loss", "sums over tokens, which the loop divides"},
                                         {"expt_device_mesh", "experts"},
                                         {"hybrid_fsdp_expt_group", "experts"},
                                         {"expt_fsdp_group_ag", "experts"},
                                         {"fsdp_double_buffer", "buckets that share memory"},
                                         {"fsdp_db_use_persist_buf_on_alloc_fail", "buckets that share memory"},
                                         {"maxpool_double_buffer", "buckets that share memory"},
                                         {"use_decoupled_grad", "gradients that stand beside param.grad"}};

class Reading {
 public:
  UserConfig read(const json& given, const UserConfigHints& hints) {
    if (!given.is_object()) {
      out_.errors.push_back({"", "is no object; expected arguments of megatron_fsdp.fully_shard"});
      return std::move(out_);
    }
    for (const auto& [name, value] : given.items()) take(name, value, "/" + pointer_token(name));
    out_.model_dtype = hints.arguments.fp16.value_or(false) ? "fp16" : hints.arguments.bf16.value_or(true) ? "bf16" : "fp32";
    if (!hints.arguments.bf16 && !hints.arguments.fp16) out_.filled.push_back({"dtype of the model", "bf16", "fully_shard leaves it to the model"});
    if (!hints.layers.empty() && !out_.config.contains("units")) out_.config["units"] = hints.layers;
    return std::move(out_);
  }

 private:
  void take(const std::string& name, const json& value, const std::string& pointer) {
    if (name == "zero_dp_strategy" || name == "outer_dp_sharding_strategy") strategy(name, value, pointer);
    else if (name == "mixed_precision_policy") dtypes(value, pointer);
    else if (name == "grad_reduce_in_fp32" || name == "preserve_fp32_weights") old_flag(name, value, pointer);
    else if (const auto found = std::find_if(std::begin(without_model), std::end(without_model), [&](const NotModelled& n) { return n.name == name; });
             found != std::end(without_model)) {
      if (value == false || value.is_null()) out_.ignored.push_back(pointer);
      else out_.not_modelled.push_back(pointer + ": " + std::string(found->what));
    } else if (std::find(inert.begin(), inert.end(), name) != inert.end()) out_.ignored.push_back(pointer);
    else own(name, value, pointer);
  }

  void own(const std::string& name, const json& value, const std::string& pointer) {
    const json& known = scenario_schema().at(json::json_pointer(std::string(schema)))["properties"];
    if (known.contains(name)) return put(name, value, pointer);
    std::vector<std::string> names{"mixed_precision_policy"};
    for (const auto& [key, unused] : known.items()) names.push_back(key);
    out_.unknown.push_back(pointer + suggestion(name, names));
  }

  void put(const std::string& key, const json& value, const std::string& pointer) {
    if (auto problem = check_against_part(std::string(schema) + "/properties/" + key, value, pointer)) out_.errors.push_back(std::move(*problem));
    else out_.config[key] = value;
  }

  void strategy(const std::string& name, const json& value, const std::string& pointer) {
    const bool numbered = value.is_number_unsigned() && value < strategies.size();
    const std::string of(numbered ? strategies[value.get<std::size_t>()] : value.is_string() ? value.get<std::string>() : "");
    if (name == "outer_dp_sharding_strategy" && of == "no_shard") return out_.ignored.push_back(pointer);
    put(name, numbered ? json(of) : value, pointer);
  }

  void dtypes(const json& value, const std::string& pointer) {
    if (!value.is_object()) return out_.errors.push_back({pointer, "is " + value.dump() + "; expected an object of dtypes"});
    put("mixed_precision", policy_as_scenarios_write_it(value), pointer);
  }

  // Two flags before 0.4.
  void old_flag(const std::string& name, const json& value, const std::string& pointer) {
    if (!value.is_boolean()) return out_.errors.push_back({pointer, "is " + value.dump() + "; expected true or false"});
    const bool in_fp32 = value.get<bool>();
    if (name == "grad_reduce_in_fp32" && in_fp32) out_.config["mixed_precision"]["main_grads_dtype"] = "fp32";
    if (name == "preserve_fp32_weights" && !in_fp32) out_.config["mixed_precision"]["main_params_dtype"] = nullptr;
  }

  UserConfig out_;
};

json without(json config, std::initializer_list<const char*> keys) {
  for (const char* key : keys) config.erase(key);
  return config;
}

json with(json config, const char* key, json value) {
  config[key] = std::move(value);
  return config;
}

class Reader final : public UserConfigReader {
 public:
  UserConfig read(const json& given, const UserConfigHints& hints) const override { return Reading().read(given, hints); }

  // The loop says where a window ends.
  void count_windows(json&, std::uint32_t) const override {}
  std::uint32_t counted_window(const json&) const override { return 1; }

  std::vector<ConfigChange> changes(const json& config) const override {
    std::vector<ConfigChange> out;
    for (const char* key : {"average_in_collective", "outer_dp_sharding_strategy"})
      if (config.contains(key)) out.push_back({std::string("leave out ") + key, std::string("no ") + key, without(config, {key})});
    if (!config.value("overlap_grad_reduce", true)) out.push_back({"leave overlap_grad_reduce on", "overlap", without(config, {"overlap_grad_reduce"})});
    if (config.value("sync_model_each_microbatch", true))
      out.push_back({"set sync_model_each_microbatch to False", "not each micro-batch", with(config, "sync_model_each_microbatch", false)});
    else out.push_back({"leave sync_model_each_microbatch on", "each micro-batch", without(config, {"sync_model_each_microbatch"})});
    json wide = config;
    wide["mixed_precision"]["main_grads_dtype"] = "fp32";
    if (wide != config) out.push_back({"sum gradients in fp32: main_grads_dtype", "fp32 gradients", wide});
    for (const ConfigChange& stage : stages(config))
      if (stage.config != config) out.push_back(stage);
    return out;
  }

  std::vector<ConfigChange> stages(const json& config) const override {
    std::vector<ConfigChange> out;
    for (const std::string_view strategy : strategies) {
      json changed = without(config, {"outer_dp_sharding_strategy"});
      changed["zero_dp_strategy"] = strategy;
      if (strategy.starts_with("optim_grads")) changed.erase("overlap_grad_reduce");
      out.push_back({"shard with zero_dp_strategy " + std::string(strategy), std::string(strategy), std::move(changed)});
    }
    return out;
  }
};

}  // namespace

json policy_as_scenarios_write_it(const json& policy) {
  json out = json::object();
  for (const auto& [key, dtype] : policy.items()) {
    std::string name = dtype.is_string() ? dtype.get<std::string>() : "";
    if (name.starts_with("torch.")) name = name.substr(6);
    out[key] = dtype.is_null() ? dtype : json(name == "bfloat16" ? "bf16" : name == "float32" || name == "float" ? "fp32" : name.empty() ? dtype.dump() : name);
  }
  return out;
}

const UserConfigReader& user_config_reader() {
  static const Reader it;
  return it;
}

}  // namespace gradledger::megatron_fsdp
