#include "conformance/torch/wrapper.h"

namespace gradledger::conform::torch {

using nlohmann::json;

std::unique_ptr<Wrapper> wrapper_of(const std::string& framework) {
  if (framework == "megatron-fsdp") return megatron_fsdp_wrapper();
  if (framework == "megatron-fsdp-v2") return megatron_fsdp_v2_wrapper();
  return framework == "fsdp1" ? fsdp1_wrapper() : framework == "fsdp2" ? fsdp2_wrapper() : ddp_wrapper();
}

std::string parameter_name(std::uint32_t parameter) { return "param" + std::to_string(parameter); }

void take_frozen(json& config, const Run& run, Scenario& scenario) {
  if (config.contains("frozen"))
    for (const Field& p : Field(config["frozen"], "/spec/config/frozen").entries(run.sizes.size()))
      scenario.parameters[p.count(0, static_cast<std::uint32_t>(run.sizes.size() - 1))].trainable = false;
  config.erase("frozen");
}

std::optional<json> first_scale(const Run& run) {
  for (const json& op : run.operations)
    for (const json& word : op)
      if (word.is_object() && word.contains("scaler")) return word["scaler"];
  return std::nullopt;
}

}  // namespace gradledger::conform::torch
