#include "sim/frameworks/torch/fsdp1/user_config.h"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "sim/frameworks/torch/plugin_reading.h"

namespace gradledger::torch {
namespace {

using nlohmann::json;

constexpr std::array<std::string_view, 20> fsdp1_taken{"sharding_strategy",
                                                       "reshard_after_forward",
                                                       "offload_params",
                                                       "cpu_offload",
                                                       "use_orig_params",
                                                       "backward_prefetch",
                                                       "forward_prefetch",
                                                       "limit_all_gathers",
                                                       "auto_wrap_policy",
                                                       "mixed_precision_policy",
                                                       "mixed_precision",
                                                       "mesh",
                                                       "ignored_modules",
                                                       "ignored_states",
                                                       "ignored_params",
                                                       "ignored_parameters",
                                                       "device_mesh",
                                                       "process_group",
                                                       "xla",
                                                       "xla_fsdp_v2"};
constexpr std::array<std::string_view, 1> fsdp1_inert{"device_id"};

// As torch.distributed.fsdp.ShardingStrategy counts them, from 1; accelerate calls the last one without "_".
constexpr std::array<std::string_view, 5> strategies{"FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD", "_HYBRID_SHARD_ZERO2"};
// torch.distributed.fsdp.BackwardPrefetch, likewise.
constexpr std::array<std::string_view, 2> prefetches{"BACKWARD_PRE", "BACKWARD_POST"};

bool is_hybrid(const json& config) { return config.value("sharding_strategy", "").find("HYBRID") != std::string::npos; }

// By name, in any case and with the class before it, or by number. Empty: none of them.
template <std::size_t Size>
std::string named_or_numbered(const json& value, const std::array<std::string_view, Size>& names) {
  std::string text = value.is_number_integer() ? value.dump() : value.is_string() ? upper_case(value.get<std::string>()) : "";
  text.erase(0, text.rfind('.') == text.npos ? 0 : text.rfind('.') + 1);
  for (std::size_t i = 0; i < Size; ++i)
    if (text == names[i] || text == std::to_string(i + 1) || "_" + text == names[i]) return std::string(names[i]);
  return "";
}

class Fsdp1Reading final : public PluginReading {
 public:
  Fsdp1Reading() : PluginReading({"/definitions/fsdp1_config", fsdp1_taken, fsdp1_inert}) {}

 private:
  void take_own(const std::string& name, const json& value, const std::string& pointer) override {
    if (name == "sharding_strategy") strategy(value, pointer);
    else if (name == "reshard_after_forward") reshard(value, pointer);
    else if (name == "offload_params" || name == "cpu_offload") offload(value, pointer);
    else if (name == "use_orig_params" || name == "forward_prefetch") flag(name.c_str(), value, pointer, false);
    else if (name == "limit_all_gathers") flag("limit_all_gathers", value, pointer, true);
    else if (name == "backward_prefetch") prefetch(value, pointer);
    else if (name == "auto_wrap_policy") wrap(value, pointer);
    else if (name == "mixed_precision_policy" || name == "mixed_precision") precision(value, pointer, precision_flags);
    else if (name == "mesh") expected(value, pointer, "nothing: what a machine has follows from num_machines of accelerate's file, or --ranks");
    else if (name == "device_mesh" || name == "process_group") no_model(value, pointer, "groups of ranks that somebody made");
    else no_model(value, pointer, name.starts_with("xla") ? "FSDP of PyTorch/XLA" : "parameters that FullyShardedDataParallel leaves alone");
  }

  void strategy(const json& value, const std::string& pointer) {
    const std::string name = named_or_numbered(value, strategies);
    if (name.empty()) expected(value, pointer, "FULL_SHARD (1), SHARD_GRAD_OP (2), NO_SHARD (3), HYBRID_SHARD (4) or HYBRID_SHARD_ZERO2 (5)");
    else if (name != strategies[0]) out_.config["sharding_strategy"] = name;
  }

  // accelerate, FullyShardedDataParallelPlugin.__post_init__: with version 1 a strategy is there before this is asked for.
  void reshard(const json& value, const std::string& pointer) {
    out_.ignored.push_back(pointer);
    const std::string name = named_or_numbered(value, strategies);
    if (!name.empty() && name != strategies[0])
      out_.notes.push_back(fmt::format("{} is {}, and with version 1 accelerate reads sharding_strategy alone (FULL_SHARD where none is named).", pointer, name));
  }

  // CPUOffload(offload_params=True), or what accelerate makes one of.
  void offload(const json& value, const std::string& pointer) {
    const bool own = value.is_object() && value.size() == 1 && value.contains("offload_params");
    if (own) flag("offload", value["offload_params"], pointer + "/offload_params", false);
    else flag("offload", value, pointer, false);
  }

  void prefetch(const json& value, const std::string& pointer) {
    const std::string name = named_or_numbered(value, prefetches);
    if (!name.empty()) out_.config["backward_prefetch"] = name;
    else if (value.is_string() && (upper_case(value) == "NO_PREFETCH" || upper_case(value) == "NONE")) out_.config["backward_prefetch"] = "none";
    else expected(value, pointer, "BACKWARD_PRE (1), BACKWARD_POST (2) or NO_PREFETCH");
  }

  void finish(const UserConfigHints& hints) override {
    if (is_hybrid(out_.config)) place_on_machines(hints);
  }

  // torch/distributed/fsdp/_init_utils.py, _init_process_group_for_hybrid_shard: a machine's ranks share the shards.
  void place_on_machines(const UserConfigHints& hints) {
    constexpr std::uint32_t ranks_of_a_machine = 8;
    const std::uint32_t machines = hints.machines.value_or(std::max(1u, hints.ranks / ranks_of_a_machine));
    if (!hints.machines) out_.filled.push_back({"/num_machines", std::to_string(machines), "nobody says how many: the usual 8 ranks on each"});
    if (hints.ranks % machines != 0 || machines == 1) return one_kind(hints.ranks, machines);
    const std::uint32_t each = hints.ranks / machines;
    json replicate(each, json::array()), shard(machines, json::array());
    for (std::uint32_t r = 0; r < hints.ranks; ++r) {
      replicate[r % each].push_back(r);
      shard[r / each].push_back(r);
    }
    out_.groups = {{"replicate", std::move(replicate)}, {"shard", std::move(shard)}};
    out_.config["mesh"] = {"replicate", "shard"};
  }

  // Without a second machine there is nothing to replicate over.
  void one_kind(std::uint32_t ranks, std::uint32_t machines) {
    if (ranks % machines != 0)
      return out_.errors.push_back({"/sharding_strategy", fmt::format("shards within a machine, and {} ranks are on {} machines; expected as many on each", ranks, machines)});
    const bool zero2 = out_.config["sharding_strategy"] == strategies.back();
    const std::string_view alike = zero2 ? strategies[1] : strategies[0];
    out_.notes.push_back(fmt::format("{} on one machine with no other one to replicate over is replayed as {}.", out_.config["sharding_strategy"].get<std::string>(), alike));
    out_.config["sharding_strategy"] = std::string(alike);
  }

  static constexpr std::array<std::string_view, 1> precision_flags{"keep_low_precision_grads"};
};

json with_strategy(const json& config, std::string_view strategy) {
  json out = config;
  out.erase("mesh");
  out["sharding_strategy"] = std::string(strategy);
  return out;
}

class Fsdp1UserConfig final : public UserConfigReader {
 public:
  UserConfig read(const json& given, const UserConfigHints& hints) const override { return Fsdp1Reading().read(given, hints); }

  // The loop says where a window ends.
  void count_windows(json&, std::uint32_t) const override {}
  std::uint32_t counted_window(const json&) const override { return 1; }

  std::vector<ConfigChange> changes(const json& config) const override {
    std::vector<ConfigChange> out = plainer(config, {"offload", "mixed_precision"}, "MixedPrecision.reduce_dtype");
    const bool original = config.value("use_orig_params", false);
    json other = config;
    other["use_orig_params"] = !original;
    out.push_back({original ? "leave out use_orig_params" : "set use_orig_params", original ? "no use_orig_params" : "use_orig_params", other});
    for (std::size_t i = 0; i < 3; ++i)
      if (config.value("sharding_strategy", std::string(strategies[0])) != strategies[i])
        out.push_back({fmt::format("shard with {}", strategies[i]), std::string(strategies[i]), with_strategy(config, strategies[i])});
    return out;
  }

  // Hybrid ones where the configuration says which ranks share shards.
  std::vector<ConfigChange> stages(const json& config) const override {
    std::vector<ConfigChange> out;
    const auto add = [&](std::string_view name, json stage) {
      stage.erase("offload");
      out.push_back({std::string(name), std::string(name), stage});
      stage["offload"] = true;
      out.push_back({fmt::format("{} with offload", name), fmt::format("{} offload", name), stage});
    };
    for (std::size_t i = 0; i < 3; ++i) add(strategies[i], with_strategy(config, strategies[i]));
    for (std::size_t i = 3; config.contains("mesh") && i < strategies.size(); ++i) {
      json hybrid = config;
      hybrid["sharding_strategy"] = std::string(strategies[i]);
      add(strategies[i], std::move(hybrid));
    }
    return out;
  }
};

}  // namespace

const UserConfigReader& fsdp1_user_config_reader() {
  static const Fsdp1UserConfig it;
  return it;
}

}  // namespace gradledger::torch
