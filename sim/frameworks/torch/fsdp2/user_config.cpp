#include "sim/frameworks/torch/fsdp2/user_config.h"

#include <array>
#include <string>
#include <vector>

#include "sim/frameworks/torch/plugin_reading.h"

namespace gradledger::torch {
namespace {

using nlohmann::json;

constexpr std::array<std::string_view, 10> fsdp2_taken{"reshard_after_forward", "offload_params", "cpu_offload", "auto_wrap_policy", "mixed_precision_policy", "sharding_strategy",
                                                       "ignored_modules",       "ignored_params", "xla",         "xla_fsdp_v2"};
// FullyShardedDataParallel's own.
constexpr std::array<std::string_view, 4> fsdp2_inert{"backward_prefetch", "forward_prefetch", "limit_all_gathers", "use_orig_params"};

class Fsdp2Reading final : public PluginReading {
 public:
  Fsdp2Reading() : PluginReading({"/definitions/fsdp2_config", fsdp2_taken, fsdp2_inert}) {}

 private:
  void take_own(const std::string& name, const json& value, const std::string& pointer) override {
    if (name == "reshard_after_forward") flag("reshard_after_forward", value, pointer, std::nullopt);
    else if (name == "offload_params" || name == "cpu_offload") flag("offload", value, pointer, false);
    else if (name == "auto_wrap_policy") wrap(value, pointer);
    else if (name == "mixed_precision_policy") precision(value, pointer);
    else if (name == "sharding_strategy") out_.notes.push_back("sharding_strategy is FSDP1's; with version 2 reshard_after_forward stands in its place.");
    else no_model(value, pointer, name.starts_with("xla") ? "FSDP of PyTorch/XLA" : "parameters that fully_shard leaves alone");
  }

  // Rows that all ranks have as many of are cut where elements are.
  void finish(const UserConfigHints& hints) override {
    if (out_.config.contains("rows")) return;
    for (const auto& [name, rows] : hints.rows)
      if (rows % hints.ranks != 0) out_.config["rows"][name] = rows;
  }
};

class Fsdp2UserConfig final : public UserConfigReader {
 public:
  UserConfig read(const json& given, const UserConfigHints& hints) const override { return Fsdp2Reading().read(given, hints); }

  // The loop says where a window ends.
  void count_windows(json&, std::uint32_t) const override {}
  std::uint32_t counted_window(const json&) const override { return 1; }

  std::vector<ConfigChange> changes(const json& config) const override {
    std::vector<ConfigChange> out =
        plainer(config, {"offload", "mixed_precision", "gradient_divide_factor", "force_sum_reduction_for_comms", "reshard_after_forward"}, "mixed_precision_policy.reduce_dtype");
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
