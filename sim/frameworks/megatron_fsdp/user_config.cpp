#include "sim/frameworks/megatron_fsdp/user_config.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "sim/frameworks/megatron_fsdp/arguments.h"

namespace gradledger::megatron_fsdp {
namespace {

using nlohmann::json;

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

class Reading final : public ArgumentsReading {
 public:
  Reading() : ArgumentsReading("/definitions/megatron_fsdp_config", "megatron_fsdp.fully_shard") {}

 private:
  void take(const std::string& name, const json& value, const std::string& pointer) override {
    if (name == "zero_dp_strategy" || name == "outer_dp_sharding_strategy") strategy(name, value, pointer);
    else if (name == "mixed_precision_policy") policy(value, pointer);
    else if (name == "grad_reduce_in_fp32" || name == "preserve_fp32_weights") old_flag(name, value, pointer);
    else if (const auto found = std::find_if(std::begin(without_model), std::end(without_model), [&](const NotModelled& n) { return n.name == name; });
             found != std::end(without_model)) {
      if (value == false || value.is_null()) out_.ignored.push_back(pointer);
      else out_.not_modelled.push_back(pointer + ": " + std::string(found->what));
    } else if (std::find(inert.begin(), inert.end(), name) != inert.end()) out_.ignored.push_back(pointer);
    else own(name, value, pointer);
  }

  void strategy(const std::string& name, const json& value, const std::string& pointer) {
    const bool numbered = value.is_number_unsigned() && value < strategies.size();
    const std::string of(numbered ? strategies[value.get<std::size_t>()] : value.is_string() ? value.get<std::string>() : "");
    if (name == "outer_dp_sharding_strategy" && of == "no_shard") return out_.ignored.push_back(pointer);
    put(name, numbered ? json(of) : value, pointer);
  }

  // Two flags before 0.4.
  void old_flag(const std::string& name, const json& value, const std::string& pointer) {
    if (!value.is_boolean()) return out_.errors.push_back({pointer, "is " + value.dump() + "; expected true or false"});
    const bool in_fp32 = value.get<bool>();
    if (name == "grad_reduce_in_fp32" && in_fp32) out_.config["mixed_precision"]["main_grads_dtype"] = "fp32";
    if (name == "preserve_fp32_weights" && !in_fp32) out_.config["mixed_precision"]["main_params_dtype"] = nullptr;
  }
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

const UserConfigReader& user_config_reader() {
  static const Reader it;
  return it;
}

}  // namespace gradledger::megatron_fsdp
