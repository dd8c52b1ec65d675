#include "audit/megatron_fsdp_options.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>

#include "sim/frameworks/framework.h"
#include "sim/scenario/json_reader.h"
#include "sim/scenario/schema.h"

namespace gradledger::audit {
namespace {

using nlohmann::json;

struct OwnDtype {
  const char *argument, *key;
};
constexpr std::array dtypes{OwnDtype{"megatron_fsdp_main_params_dtype", "main_params_dtype"}, OwnDtype{"megatron_fsdp_main_grads_dtype", "main_grads_dtype"},
                            OwnDtype{"megatron_fsdp_grad_comm_dtype", "grad_comm_dtype"}};
constexpr std::array sizes{"tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size", "expert_model_parallel_size", "num_experts", "num_moe_experts"};

class Options {
 public:
  Options(const json& arguments, const UserConfigHints& hints) : arguments_(arguments), hints_(hints) {}

  // What is Megatron-LM's own is read as without Megatron-FSDP: its names, batch, precision and optimizer.
  UserConfig read() {
    json others = arguments_;
    for (const char* name :
         {"use_megatron_fsdp", "use_custom_fsdp", "data_parallel_sharding_strategy", "outer_dp_sharding_strategy", "fsdp_double_buffer", "megatron_fsdp_version"})
      others.erase(name);
    for (const OwnDtype& dtype : dtypes) others.erase(dtype.argument);
    out_ = framework_named("megatron")->user_config()->read(others, hints_);
    of_core_ = std::exchange(out_.config, second_ ? json::object() : json{{"sync_model_each_microbatch", false}, {"fully_shard_optimizer", false}});
    std::erase_if(out_.filled, [](const FilledValue& value) { return value.pointer == "/ddp_bucket_size" || value.pointer == "/accumulate_allreduce_grads_in_fp32"; });
    out_.ranks.reset();
    out_.groups = out_.layout = out_.parameters = json();
    if (second_) strategy_of_the_second();
    else strategy();
    precision();
    refuse();
    if (core("/optimizer_config/clip_grad", 1.0) > 0) out_.not_judged.emplace_back("what clipping does to gradients (clip_grad)");
    return std::move(out_);
  }

 private:
  template <class T>
  T core(const char* pointer, T otherwise) const {
    return of_core_.value(json::json_pointer(pointer), otherwise);
  }
  void without_model(const std::string& what) { out_.not_modelled.push_back(what); }

  void put(const char* argument, const char* key, const json& value) {
    const std::string schema = std::string(second_ ? "/definitions/megatron_fsdp_v2_config" : "/definitions/megatron_fsdp_config") + "/properties/" + key;
    if (auto problem = check_against_part(schema, value, std::string("/") + argument)) out_.errors.push_back(std::move(*problem));
    else out_.config[key] = value;
  }

  // Only where weights are sharded are layers units.
  void strategy() {
    const json given = arguments_.value("data_parallel_sharding_strategy", json("optim_grads_params"));
    put("data_parallel_sharding_strategy", "zero_dp_strategy", given);
    if (given != "optim_grads_params") out_.config["wrap"] = "root";
    else if (!hints_.layers.empty()) out_.config["units"] = hints_.layers;
    const bool sharded = given == "optim_grads" || given == "optim_grads_params";
    if (!sharded && !core("/ddp/overlap_grad_reduce", false)) out_.config["overlap_grad_reduce"] = false;
  }

  // FullyShardedDataParallelV2._validate_config raises at what it does not take.
  void strategy_of_the_second() {
    if (const json given = arguments_.value("data_parallel_sharding_strategy", json("optim_grads_params")); given != "optim_grads_params")
      out_.errors.push_back({"/data_parallel_sharding_strategy", "is " + given.dump() + "; MFSDP v2 requires \"optim_grads_params\""});
    if (const json outer = arguments_.value("outer_dp_sharding_strategy", json("no_shard")); outer != "no_shard")
      out_.errors.push_back({"/outer_dp_sharding_strategy", "is " + outer.dump() + "; MFSDP v2 does not support outer DP sharding"});
    if (!hints_.layers.empty()) out_.config["units"] = hints_.layers;
  }

  void precision() {
    json policy = json::object();
    for (const OwnDtype& dtype : dtypes)
      if (arguments_.contains(dtype.argument)) policy[dtype.key] = arguments_[dtype.argument] == "auto" ? json() : arguments_[dtype.argument];
    if (!second_ && arguments_.value("grad_reduce_in_bf16", json(false)) == true) policy["grad_comm_dtype"] = "bf16";
    if (!policy.empty()) put("megatron_fsdp_main_grads_dtype", "mixed_precision", policy);
    if (out_.model_dtype == "fp16") without_model("/fp16: loss scales in Megatron-FSDP");
  }

  void refuse() {
    for (const char* name : sizes)
      if (const json size = arguments_.value(name, json(1)); size.is_number() && size > 1) without_model(std::string("/") + name + ": parts of a model in Megatron-FSDP");
    if (core("/ddp/num_distributed_optimizer_instances", 1) > 1) without_model("/num_distributed_optimizer_instances: ranks outside of a shard, whose groups arguments do not say");
    if (core("/ddp/average_in_collective", false)) without_model("/ddp_average_in_collective: averages of NCCL's own in Megatron-FSDP");
    if (core("/model/calculate_per_token_loss", false)) without_model("/calculate_per_token_loss: sums over tokens in Megatron-FSDP");
    if (arguments_.value("fsdp_double_buffer", json(false)) == true) without_model("/fsdp_double_buffer: buckets that share memory");
    if (const json version = arguments_.value("megatron_fsdp_version", json(1)); version != 1 && version != 2)
      out_.errors.push_back({"/megatron_fsdp_version", "is " + version.dump() + "; expected 1 or 2"});
  }

  const json& arguments_;
  const UserConfigHints& hints_;
  const bool second_ = arguments_.value("megatron_fsdp_version", json(1)) == 2;
  json of_core_;
  UserConfig out_;
};

}  // namespace

UserConfig megatron_fsdp_options(const json& arguments, const UserConfigHints& hints) { return Options(arguments, hints).read(); }

}  // namespace gradledger::audit
