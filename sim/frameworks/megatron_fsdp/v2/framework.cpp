#include "sim/frameworks/megatron_fsdp/v2/framework.h"

#include <array>
#include <string>

#include <nlohmann/json.hpp>

#include "sim/frameworks/megatron_fsdp/v2/admission.h"
#include "sim/frameworks/megatron_fsdp/v2/behaviour.h"
#include "sim/frameworks/megatron_fsdp/v2/buffers.h"
#include "sim/frameworks/megatron_fsdp/v2/catalogue.h"
#include "sim/frameworks/megatron_fsdp/v2/config_json.h"
#include "sim/frameworks/megatron_fsdp/v2/contract.h"
#include "sim/frameworks/megatron_fsdp/v2/documented_use.h"
#include "sim/frameworks/megatron_fsdp/v2/fsdp_module.h"
#include "sim/frameworks/megatron_fsdp/v2/history.h"
#include "sim/frameworks/megatron_fsdp/v2/search/search_space.h"
#include "sim/frameworks/megatron_fsdp/v2/user_config.h"

namespace gradledger::megatron_fsdp {
namespace {

using nlohmann::json;
using v2::V2Config;

const V2Config& v2_config_of(const Scenario& scenario) { return scenario.engine.config.as<V2Config>(); }

class SecondVersion final : public Framework {
 public:
  std::string_view id() const override { return "megatron-fsdp-v2"; }
  std::string_view title() const override { return "Megatron-FSDP v2"; }

  Result<FrameworkConfig> config_from_json(const json& config, std::uint32_t, const std::string& where) const override {
    auto read = v2::v2_config_from_json(config, where);
    if (!read) return read.error();
    return FrameworkConfig(std::move(read).value());
  }
  Result<Dtype> model_dtype(FrameworkConfig&, const json&, std::optional<Dtype> stated) const override { return stated.value_or(Dtype::float32); }

  std::optional<InputError> as_of_problem(const AsOf& as_of) const override {
    const auto behaviour = v2::behaviour_of(as_of);
    return behaviour ? std::nullopt : std::optional(behaviour.error());
  }
  std::optional<std::string> as_of_note(std::string_view as_of) const override { return v2::release_note(as_of); }
  std::optional<AsOf> installed(const std::map<std::string, std::string>& releases) const override {
    const auto found = releases.find("megatron-fsdp");
    if (found == releases.end()) return AsOf{};
    AsOf out{found->second.substr(0, found->second.find('+')), {}};
    return as_of_problem(out) ? AsOf{} : out;
  }
  Result<Contract> contract(const Scenario& scenario) const override {
    if (auto problem = as_of_problem(scenario.engine.as_of)) return *problem;
    return v2::v2_contract(scenario, v2_config_of(scenario));
  }

  std::span<const EngineInfo> engines() const override {
    static constexpr std::array infos{EngineInfo{"FsdpModule", "framework megatron-fsdp-v2: megatron_fsdp.experimental of the package megatron-fsdp, 0.6.0 and 0.6.1",
                                                 "main_grad, a rank's shard, to which a module that has all of its gradients adds their average", "recorded"}};
    return infos;
  }
  Result<const EngineInfo*> select(const Scenario& scenario) const override {
    if (auto problem = v2::v2_refusal(scenario, v2_config_of(scenario))) return *problem;
    return &engines().front();
  }
  EngineFactory factory(const Scenario& scenario) const override {
    return [&config = v2_config_of(scenario), behaviour = v2::behaviour_of(scenario.engine.as_of).value()](const EngineContext& context) {
      return std::make_unique<v2::FsdpModules>(context, config, behaviour);
    };
  }

  std::span<const BufferFamily> buffer_families() const override { return v2::v2_buffer_families(); }
  // Weights and masters, a whole gradient, what it is packed in, its shard, twice, and what a step makes of it, moments; each group padded.
  std::uint64_t rank_bytes(const Scenario& scenario) const override { return (scenario.numel() + scenario.parameters.size() * scenario.world_size) * 12 * size_of(Dtype::float32); }
  std::string described(const Scenario& scenario) const override {
    const std::string options = v2_config_of(scenario).json_text();
    return options == "{}" ? "default options" : "options " + options;
  }

  std::span<const Entry> catalogue() const override { return v2::catalogue(); }
  std::span<const UseRule> use_rules() const override { return v2::v2_use_rules(); }
  UseReport use_of(const Scenario& scenario, const Timeline& timeline) const override { return v2::v2_use_of(scenario, timeline, v2_config_of(scenario)); }
  const History* history() const override { return &v2::history(); }
  const UserConfigReader* user_config() const override { return &v2::user_config_reader(); }
  const SearchSpace* search_space() const override { return &v2::search_space(); }
};

}  // namespace

const Framework* second_version() {
  static const SecondVersion it;
  return &it;
}

}  // namespace gradledger::megatron_fsdp
