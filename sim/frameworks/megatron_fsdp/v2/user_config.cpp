#include "sim/frameworks/megatron_fsdp/v2/user_config.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "sim/frameworks/megatron_fsdp/user_config.h"
#include "sim/frameworks/megatron_fsdp/v2/config_json.h"
#include "sim/scenario/json_reader.h"
#include "sim/scenario/schema.h"
#include "sim/scenario/spelling.h"

namespace gradledger::megatron_fsdp::v2 {
namespace {

using nlohmann::json;

// experimental/fully_shard.py: fully_shard, at 0.6.1.
constexpr std::array<std::string_view, 3> inert{"module", "use_symm_mem", "calls_unused_units"};
constexpr std::array<std::string_view, 3> without_model{"mesh", "placements", "grad_divisor"};

class Reading {
 public:
  UserConfig read(const json& given, const UserConfigHints& hints) {
    if (!given.is_object()) {
      out_.errors.push_back({"", "is no object; expected arguments of megatron_fsdp.experimental.fully_shard"});
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
    const auto is_one_of = [&](const auto& names) { return std::find(names.begin(), names.end(), name) != names.end(); };
    if (name == "mixed_precision_policy" && !value.is_object()) out_.errors.push_back({pointer, "is " + value.dump() + "; expected an object of dtypes"});
    else if (name == "mixed_precision_policy") put("mixed_precision", policy_as_scenarios_write_it(value), pointer);
    else if (is_one_of(inert) || value.is_null()) out_.ignored.push_back(pointer);
    else if (is_one_of(without_model)) out_.not_modelled.push_back(pointer + ": ranks or parts that a file does not say: write a scenario, with mesh where shards are copied");
    else own(name, value, pointer);
  }

  void own(const std::string& name, const json& value, const std::string& pointer) {
    const json& known = scenario_schema().at(json::json_pointer(schema_of_config))["properties"];
    if (known.contains(name)) return put(name, value, pointer);
    std::vector<std::string> names{"mixed_precision_policy"};
    for (const auto& [key, unused] : known.items()) names.push_back(key);
    out_.unknown.push_back(pointer + suggestion(name, names));
  }

  void put(const std::string& key, const json& value, const std::string& pointer) {
    if (auto problem = check_against_part(std::string(schema_of_config) + "/properties/" + key, value, pointer)) out_.errors.push_back(std::move(*problem));
    else out_.config[key] = value;
  }

  UserConfig out_;
};

class Reader final : public UserConfigReader {
 public:
  UserConfig read(const json& given, const UserConfigHints& hints) const override { return Reading().read(given, hints); }

  // The loop says where a window ends.
  void count_windows(json&, std::uint32_t) const override {}
  std::uint32_t counted_window(const json&) const override { return 1; }

  // Nothing that a policy says makes reductions finer.
  std::vector<ConfigChange> changes(const json&) const override { return {}; }
};

}  // namespace

const UserConfigReader& user_config_reader() {
  static const Reader it;
  return it;
}

}  // namespace gradledger::megatron_fsdp::v2
