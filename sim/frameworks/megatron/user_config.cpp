#include "sim/frameworks/megatron/user_config.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "sim/base/limits.h"
#include "sim/frameworks/megatron/user_config_keys.h"
#include "sim/frameworks/megatron/user_ranks.h"
#include "sim/scenario/json_reader.h"
#include "sim/scenario/schema.h"
#include "sim/scenario/spelling.h"

namespace gradledger::megatron {
namespace {

using nlohmann::json;

// Where an argument goes in the configuration of a scenario: megatron/training/training.py, get_megatron_ddp_config, and
// megatron/training/arguments.py, at core_v0.19.0.
struct Place {
  const char *argument, *pointer;
};
constexpr std::array places{Place{"overlap_grad_reduce", "/ddp/overlap_grad_reduce"},
                            Place{"overlap_param_gather", "/ddp/overlap_param_gather"},
                            Place{"use_distributed_optimizer", "/ddp/use_distributed_optimizer"},
                            Place{"accumulate_allreduce_grads_in_fp32", "/ddp/grad_reduce_in_fp32"},
                            Place{"ddp_average_in_collective", "/ddp/average_in_collective"},
                            Place{"ddp_pad_buckets_for_high_nccl_busbw", "/ddp/pad_buckets_for_high_nccl_busbw"},
                            Place{"num_distributed_optimizer_instances", "/ddp/num_distributed_optimizer_instances"},
                            Place{"ddp_bucket_size", "/ddp/bucket_size"},
                            Place{"clip_grad", "/optimizer_config/clip_grad"},
                            Place{"loss_scale", "/optimizer_config/loss_scale"},
                            Place{"initial_loss_scale", "/optimizer_config/initial_loss_scale"},
                            Place{"min_loss_scale", "/optimizer_config/min_loss_scale"},
                            Place{"loss_scale_window", "/optimizer_config/loss_scale_window"},
                            Place{"hysteresis", "/optimizer_config/hysteresis"},
                            Place{"log_num_zeros_in_grad", "/optimizer_config/log_num_zeros_in_grad"},
                            Place{"calculate_per_token_loss", "/model/calculate_per_token_loss"}};
constexpr std::array flags{
    "bf16", "fp16", "grad_reduce_in_bf16", "sequence_parallel", "no_align_grad_reduce", "no_delay_grad_reduce", "use_tp_pp_dp_mapping", "untie_embeddings_and_output_weights"};
constexpr std::array counts{"micro_batch_size", "global_batch_size", "tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size"};
// Those that may be left open, as None.
constexpr std::array open_counts{"num_layers_per_virtual_pipeline_stage",
                                 "num_virtual_stages_per_pipeline_rank",
                                 "microbatch_group_size_per_virtual_pipeline_stage",
                                 "num_experts",
                                 "num_moe_experts",
                                 "expert_model_parallel_size",
                                 "expert_tensor_parallel_size"};
constexpr std::array optimizer_numbers{Place{"lr", "lr"}, Place{"weight_decay", "weight_decay"}, Place{"adam_eps", "eps"}};
constexpr std::array others{"optimizer", "main_grads_dtype", "adam_beta1", "adam_beta2"};

// What torchrun, or a script around it, has of its own.
constexpr std::array launcher{"nproc_per_node", "nnodes", "node_rank", "master_addr", "master_port", "rdzv_id", "rdzv_backend", "rdzv_endpoint", "max_restarts", "standalone"};

template <class List>
bool has(const List& list, std::string_view name) {
  return std::find(list.begin(), list.end(), name) != list.end();
}

class Reading {
 public:
  explicit Reading(const UserConfigHints& hints) : hints_(hints) {}

  UserConfig read(const json& given) {
    if (!given.is_object()) {
      out_.errors.push_back({"", "is no object; expected arguments of Megatron-LM"});
      return std::move(out_);
    }
    out_.optimizer = {{"type", "AdamW"}};
    out_.optimizer_name = "adam";
    for (const auto& [key, value] : given.items()) take(key, value);
    precision();
    take_ranks(asked_, hints_, out_);
    shrink();
    return std::move(out_);
  }

 private:
  void wrong(const std::string& pointer, const json& value, const std::string& expected) { out_.errors.push_back({pointer, "is " + value.dump() + "; expected " + expected}); }

  void take(const std::string& key, const json& value) {
    const std::string pointer = "/" + pointer_token(key);
    std::string name = key;
    std::replace(name.begin(), name.end(), '-', '_');
    const auto place = std::find_if(places.begin(), places.end(), [&](const Place& p) { return name == p.argument; });
    if (place != places.end()) of_place(*place, value, pointer);
    else if (has(flags, name)) flag(name, value, pointer);
    else if (has(counts, name) || (has(open_counts, name) && !is_open(value))) count(name, value, pointer);
    else if (name == "num_layers" && value.is_number_unsigned()) asked_.counts[name] = value, out_.ignored.push_back(pointer);
    else if (name == "optimizer") optimizer(value, pointer);
    else if (name == "adam_beta1" || name == "adam_beta2") beta(name, value, pointer);
    else if (name == "main_grads_dtype" && value != "fp32") out_.not_modelled.push_back(pointer + ": gradients in " + value.dump());
    else if (const auto number = std::find_if(optimizer_numbers.begin(), optimizer_numbers.end(), [&](const Place& p) { return name == p.argument; });
             number != optimizer_numbers.end())
      of_optimizer(number->pointer, value, pointer);
    else if (const auto why = not_modelled(name, value)) out_.not_modelled.push_back(*why);
    else if (touches_no_gradient(name) || has(launcher, name) || has(open_counts, name) || name == "main_grads_dtype" || not_modelled(name, true)) out_.ignored.push_back(pointer);
    else unknown(name, pointer);
  }

  void of_place(const Place& place, const json& value, const std::string& pointer) {
    std::string schema = "/definitions/megatron_config";
    const json::json_pointer at(place.pointer);
    schema += "/properties/" + at.parent_pointer().back() + "/properties/" + at.back();
    if (auto problem = check_against_part(schema, value, pointer)) out_.errors.push_back(std::move(*problem));
    else if (value != false) out_.config[at] = value;
  }

  void flag(const std::string& name, const json& value, const std::string& pointer) {
    if (value.is_boolean()) asked_.flags[name] = value.get<bool>();
    else wrong(pointer, value, "no value: it is a switch");
  }

  void count(const std::string& name, const json& value, const std::string& pointer) {
    if (value.is_number_integer() && value >= 1 && value <= 1'000'000'000) asked_.counts[name] = value.get<std::uint64_t>();
    else wrong(pointer, value, "a whole number, at least 1");
  }

  void optimizer(const json& value, const std::string& pointer) {
    if (!value.is_string()) return wrong(pointer, value, "the name of an optimizer");
    out_.optimizer_name = value.get<std::string>();
    if (value == "sgd") out_.optimizer["type"] = "SGD";
    else if (value != "adam") out_.not_modelled.push_back(pointer + ": " + out_.optimizer_name + ", which is not stepped as adam and sgd are");
  }

  void of_optimizer(const char* key, const json& value, const std::string& pointer) {
    if (auto problem = check_against_part(std::string("/properties/engine/properties/optimizer/properties/") + key, value, pointer)) out_.errors.push_back(std::move(*problem));
    else out_.optimizer[key] = value;
  }

  void beta(const std::string& name, const json& value, const std::string& pointer) {
    if (!value.is_number() || value < 0 || value >= 1) return wrong(pointer, value, "a number from 0 to below 1");
    if (!out_.optimizer.contains("betas")) out_.optimizer["betas"] = {0.9, 0.999};
    out_.optimizer["betas"][name == "adam_beta1" ? 0 : 1] = value;
  }

  void unknown(const std::string& name, const std::string& pointer) {
    std::vector<std::string> names(flags.begin(), flags.end());
    names.insert(names.end(), counts.begin(), counts.end());
    names.insert(names.end(), open_counts.begin(), open_counts.end());
    names.insert(names.end(), others.begin(), others.end());
    for (const Place& p : places) names.emplace_back(p.argument);
    out_.unknown.push_back(pointer + suggestion(name, names));
  }

  // validate_args: bf16 sums in fp32 unless grad_reduce_in_bf16 is given.
  void precision() {
    if (asked_.set("bf16") && asked_.set("fp16")) out_.errors.push_back({"/fp16", "is given, and so is bf16; expected one of the two"});
    out_.model_dtype = asked_.set("bf16") ? "bf16" : asked_.set("fp16") ? "fp16" : "fp32";
    const json::json_pointer in_fp32("/ddp/grad_reduce_in_fp32");
    if (!asked_.set("bf16")) return;
    if (asked_.set("grad_reduce_in_bf16")) {
      if (out_.config.contains(in_fp32)) out_.config["ddp"].erase("grad_reduce_in_fp32");
    } else if (!out_.config.contains(in_fp32)) {
      out_.config[in_fp32] = true;
      out_.filled.push_back({"/accumulate_allreduce_grads_in_fp32", "true", "Megatron-LM's own with bf16, without grad_reduce_in_bf16"});
    }
  }

  static bool is_open(const json& value) { return value == false || value == 0 || value == "None" || value.is_null(); }

  // A model that is smaller has as many buckets.
  void shrink() {
    if (hints_.shrink == 1) return;
    const json::json_pointer bucket("/ddp/bucket_size");
    const std::uint64_t by_default = std::max<std::uint64_t>(40'000'000, 1'000'000 * std::uint64_t{out_.ranks.value_or(hints_.ranks)});
    const std::uint64_t given = out_.config.contains(bucket) ? out_.config[bucket].get<std::uint64_t>() : by_default;
    out_.config[bucket] = std::max<std::uint64_t>(1, given / hints_.shrink);
    out_.filled.push_back({"/ddp_bucket_size", out_.config[bucket].dump(), "smaller with the model"});
  }

  const UserConfigHints& hints_;
  AskedFor asked_;
  UserConfig out_;
};

// Without overlap_grad_reduce nobody begins a reduction early.
json without(const json& config, std::initializer_list<const char*> keys) {
  json out = config;
  for (const char* key : keys) {
    if (out.contains("ddp")) out["ddp"].erase(key);
    if (out.contains("schedule") && std::string_view(key) == "overlap_grad_reduce") out["schedule"].erase("grad_sync_func");
  }
  return out;
}

json not_aligned(json config) {
  config["schedule"].erase("grad_sync_func");
  return config;
}

class MegatronUserConfig final : public UserConfigReader {
 public:
  UserConfig read(const json& given, const UserConfigHints& hints) const override { return Reading(hints).read(given); }

  // A schedule counts what it is called with, which the loop says.
  void count_windows(json&, std::uint32_t) const override {}
  std::uint32_t counted_window(const json&) const override { return 1; }

  std::vector<ConfigChange> changes(const json& config) const override {
    std::vector<ConfigChange> out;
    const json ddp = config.value("ddp", json::object());
    if (ddp.contains("overlap_grad_reduce")) out.push_back({"leave out overlap_grad_reduce", "no overlap", without(config, {"overlap_grad_reduce", "overlap_param_gather"})});
    if (ddp.contains("overlap_param_gather")) out.push_back({"leave out overlap_param_gather", "no overlap_param_gather", without(config, {"overlap_param_gather"})});
    if (ddp.contains("use_distributed_optimizer"))
      out.push_back({"leave out use_distributed_optimizer", "no distributed optimizer",
                     without(config, {"use_distributed_optimizer", "overlap_param_gather", "num_distributed_optimizer_instances"})});
    if (ddp.contains("average_in_collective")) out.push_back({"leave out ddp_average_in_collective", "no average in collective", without(config, {"average_in_collective"})});
    if (ddp.contains("num_distributed_optimizer_instances"))
      out.push_back({"leave out num_distributed_optimizer_instances", "one instance", without(config, {"num_distributed_optimizer_instances"})});
    if (config.contains(json::json_pointer("/schedule/grad_sync_func"))) out.push_back({"give no_align_grad_reduce", "not aligned", not_aligned(config)});
    if (!ddp.contains("grad_reduce_in_fp32")) {
      json wide = config;
      wide["ddp"]["grad_reduce_in_fp32"] = true;
      out.push_back({"add accumulate_allreduce_grads_in_fp32", "fp32 gradients", wide});
    }
    return out;
  }

  std::vector<ConfigChange> stages(const json& config) const override {
    const json plain = without(config, {"overlap_grad_reduce", "overlap_param_gather", "use_distributed_optimizer", "num_distributed_optimizer_instances"});
    json overlap = plain, divided = plain, both = plain;
    if (config.contains("schedule")) overlap["schedule"] = both["schedule"] = config["schedule"];
    overlap["ddp"]["overlap_grad_reduce"] = both["ddp"]["overlap_grad_reduce"] = true;
    divided["ddp"]["use_distributed_optimizer"] = both["ddp"]["use_distributed_optimizer"] = true;
    return {{"leave out overlap and distributed optimizer", "plain", plain},
            {"overlap_grad_reduce alone", "overlap", overlap},
            {"use_distributed_optimizer alone", "distributed", divided},
            {"overlap_grad_reduce and use_distributed_optimizer", "distributed overlap", both}};
  }
};

}  // namespace

const UserConfigReader& megatron_user_config_reader() {
  static const MegatronUserConfig it;
  return it;
}

}  // namespace gradledger::megatron
