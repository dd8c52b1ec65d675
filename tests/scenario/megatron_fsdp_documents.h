// Every key of both versions of Megatron-FSDP, on top of a small document.
#pragma once

#include <utility>

#include <nlohmann/json.hpp>

namespace gradledger::testing {

// Units are named, or follow from how layers are wrapped.
inline nlohmann::json every_key_of_megatron_fsdp(nlohmann::json document, bool named) {
  using nlohmann::json;
  document["name"] = "every key of Megatron-FSDP";
  document["model_dtype"] = "fp32";
  document["world_size"] = 2;
  document["groups"] = {{"replicate", {{0}, {1}}}, {"shard", {{0, 1}}}};
  document["script"] = json::parse(R"([{"backward": {}}, {"step": {}}, {"zero_grad": "optimizer"}])");
  document["engine"] = json::parse(R"({"framework": "megatron-fsdp", "as_of": "0.6.1", "config": {
    "zero_dp_strategy": "optim_grads", "outer_dp_sharding_strategy": "no_shard", "sync_model_each_microbatch": true, "fully_shard_optimizer": true,
    "overlap_grad_reduce": true, "average_in_collective": false, "calculate_per_token_loss": false,
    "wrap": "root", "mixed_precision": {"main_params_dtype": "fp32", "main_grads_dtype": "fp32", "grad_comm_dtype": "fp32"}}})");
  if (named) document["engine"]["config"] = json::parse(R"({"units": [["v"]], "mesh": ["replicate", "shard"]})");
  return document;
}

inline nlohmann::json every_key_of_megatron_fsdp_v2(nlohmann::json document, bool named) {
  document = every_key_of_megatron_fsdp(std::move(document), named);
  document["name"] = "every key of the second version of Megatron-FSDP";
  document["engine"]["framework"] = "megatron-fsdp-v2";
  document["engine"]["config"] =
      nlohmann::json::parse(named ? R"({"units": [["v"]], "mesh": ["replicate", "shard"], "calls_unused_units": true})"
                                  : R"({"wrap": "root", "mixed_precision": {"main_params_dtype": "fp32", "main_grads_dtype": "fp32", "grad_comm_dtype": "fp32"}})");
  return document;
}

}  // namespace gradledger::testing
