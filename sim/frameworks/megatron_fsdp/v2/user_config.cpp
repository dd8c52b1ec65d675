#include "sim/frameworks/megatron_fsdp/v2/user_config.h"

#include <algorithm>
#include <array>
#include <string>

#include "sim/frameworks/megatron_fsdp/arguments.h"
#include "sim/frameworks/megatron_fsdp/v2/config_json.h"

namespace gradledger::megatron_fsdp::v2 {
namespace {

using nlohmann::json;

// experimental/fully_shard.py: fully_shard, at 0.6.1.
constexpr std::array<std::string_view, 3> inert{"module", "use_symm_mem", "calls_unused_units"};
constexpr std::array<std::string_view, 3> without_model{"mesh", "placements", "grad_divisor"};

class Reading final : public ArgumentsReading {
 public:
  Reading() : ArgumentsReading(std::string(schema_of_config), "megatron_fsdp.experimental.fully_shard") {}

 private:
  void take(const std::string& name, const json& value, const std::string& pointer) override {
    const auto is_one_of = [&](const auto& names) { return std::find(names.begin(), names.end(), name) != names.end(); };
    if (name == "mixed_precision_policy") policy(value, pointer);
    else if (is_one_of(inert) || value.is_null()) out_.ignored.push_back(pointer);
    else if (is_one_of(without_model)) out_.not_modelled.push_back(pointer + ": ranks or parts that a file does not say: write a scenario, with mesh where shards are copied");
    else own(name, value, pointer);
  }
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
