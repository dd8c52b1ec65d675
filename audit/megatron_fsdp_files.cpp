#include "audit/megatron_fsdp_files.h"

#include <algorithm>
#include <array>
#include <utility>

namespace gradledger::audit {
namespace {

using nlohmann::json;

void fill(Given& out, const char* name, const char* value, const char* why) {
  json& arguments = out.config->json;
  if (arguments.contains(name)) return;
  arguments[name] = value;
  out.filled.push_back({std::string("/") + name, value, why});
}

bool asks(const json& arguments, const char* name) { return arguments.value(name, json(false)) == true; }

}  // namespace

bool asks_for_megatron_fsdp(const json& arguments) { return arguments.is_object() && (asks(arguments, "use_megatron_fsdp") || asks(arguments, "use-megatron-fsdp")); }

void take_megatron_fsdp(const loops::Releases& releases, Given& out) {
  json named = json::object();
  for (const auto& [key, value] : out.config->json.items()) {
    std::string name = key;
    std::replace(name.begin(), name.end(), '-', '_');
    named[name] = value;
  }
  out.config->json = std::move(named);
  const auto found = releases.find("megatron-core");
  const auto before = [&](const char* release) { return found != releases.end() && !loops::at_least(found->second, release); };
  fill(out, "data_parallel_sharding_strategy", before("0.18") ? "no_shard" : "optim_grads_params", "Megatron-LM's own: no_shard before core 0.18, optim_grads_params since");
  const bool in_fp32 = asks(out.config->json, "accumulate_allreduce_grads_in_fp32") || (asks(out.config->json, "bf16") && !asks(out.config->json, "grad_reduce_in_bf16"));
  if (before("0.17.1") && in_fp32) fill(out, "megatron_fsdp_main_grads_dtype", "fp32", "what accumulate_allreduce_grads_in_fp32 means to Megatron-FSDP before core 0.17.1");
}

std::string megatron_fsdp_in(const std::string& megatron_core) {
  constexpr std::array<std::pair<const char*, const char*>, 6> first{
      {{"0.19", "0.6.1"}, {"0.18", "0.5.1"}, {"0.17.1", "0.4.0"}, {"0.16", "0.3.1"}, {"0.15", "0.2.3"}, {"0.14", "0.1.0"}}};
  for (const auto& [core, package] : first)
    if (loops::at_least(megatron_core, core)) return package;
  return "";
}

}  // namespace gradledger::audit
