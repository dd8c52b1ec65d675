#include "sim/frameworks/megatron_fsdp/framework.h"

#include <array>
#include <string>

#include <nlohmann/json.hpp>

#include "sim/frameworks/megatron_fsdp/admission.h"
#include "sim/frameworks/megatron_fsdp/behaviour.h"
#include "sim/frameworks/megatron_fsdp/buffers.h"
#include "sim/frameworks/megatron_fsdp/catalogue.h"
#include "sim/frameworks/megatron_fsdp/config_json.h"
#include "sim/frameworks/megatron_fsdp/contract.h"
#include "sim/frameworks/megatron_fsdp/documented_use.h"
#include "sim/frameworks/megatron_fsdp/history.h"
#include "sim/frameworks/megatron_fsdp/megatron_fsdp_engine.h"
#include "sim/frameworks/megatron_fsdp/methods.h"
#include "sim/frameworks/megatron_fsdp/search/search_space.h"
#include "sim/frameworks/megatron_fsdp/user_config.h"

namespace gradledger::megatron_fsdp {
namespace {

using nlohmann::json;

const MegatronFsdpConfig& config_of(const Scenario& scenario) { return scenario.engine.config.as<MegatronFsdpConfig>(); }

class MegatronFsdpFramework final : public Framework {
 public:
  std::string_view id() const override { return "megatron-fsdp"; }
  std::string_view title() const override { return "Megatron-FSDP"; }

  Result<FrameworkConfig> config_from_json(const json& config, std::uint32_t, const std::string& where) const override {
    auto read = megatron_fsdp_config_from_json(config, where);
    if (!read) return read.error();
    return FrameworkConfig(std::move(read).value());
  }
  Result<Dtype> model_dtype(FrameworkConfig&, const json&, std::optional<Dtype> stated) const override { return stated.value_or(Dtype::float32); }
  std::span<const FrameworkEvent> events() const override { return own_events; }
  Result<FrameworkValue> event_from_json(const FrameworkEvent& event, const json& arguments, const std::string& where) const override {
    auto read = call_from_json(event.name, arguments, where);
    if (!read) return read.error();
    return FrameworkValue(std::move(read).value());
  }
  std::optional<ReductionSwitch> switches_reductions(const FrameworkEvent& event, const FrameworkValue& value) const override {
    return event.name == auto_sync_event ? std::optional(ReductionSwitch{.held_back = !value.as<Call>().sync}) : std::nullopt;
  }

  std::optional<InputError> as_of_problem(const AsOf& as_of) const override {
    const auto behaviour = behaviour_of(as_of);
    return behaviour ? std::nullopt : std::optional(behaviour.error());
  }
  std::optional<std::string> as_of_note(std::string_view as_of) const override { return release_note(as_of); }
  std::optional<AsOf> installed(const std::map<std::string, std::string>& releases) const override {
    const auto found = releases.find("megatron-fsdp");
    if (found == releases.end()) return AsOf{};
    AsOf out{found->second.substr(0, found->second.find('+')), {}};
    return as_of_problem(out) ? AsOf{} : out;
  }
  Result<Contract> contract(const Scenario& scenario) const override {
    if (auto problem = as_of_problem(scenario.engine.as_of)) return *problem;
    return megatron_fsdp_contract(scenario, config_of(scenario));
  }

  std::span<const EngineInfo> engines() const override {
    static constexpr std::array infos{EngineInfo{"MegatronFSDP", "framework megatron-fsdp: the package megatron-fsdp, 0.1.0 to 0.6.1",
                                                 "main_grad_buffer, whole or a rank's shard, to which every reduced backward is added", "recorded"}};
    return infos;
  }
  Result<const EngineInfo*> select(const Scenario& scenario) const override {
    if (auto problem = megatron_fsdp_refusal(scenario, config_of(scenario))) return *problem;
    if (auto problem = not_judged(scenario)) return *problem;
    return &engines().front();
  }
  EngineFactory factory(const Scenario& scenario) const override {
    return [&config = config_of(scenario), behaviour = behaviour_of(scenario.engine.as_of).value()](const EngineContext& context) {
      return std::make_unique<MegatronFsdpEngine>(context, config, behaviour);
    };
  }

  std::span<const BufferFamily> buffer_families() const override { return megatron_fsdp_buffer_families(); }
  // Weights, gathered ones and masters, a whole gradient, its buffer, a bucket and its copies, the gradient of the step, moments; each group padded.
  std::uint64_t rank_bytes(const Scenario& scenario) const override {
    return (scenario.numel() + scenario.parameters.size() * owners_of(scenario, config_of(scenario))) * 12 * size_of(Dtype::float32);
  }
  std::optional<std::uint32_t> stage(const Scenario& scenario) const override { return static_cast<std::uint32_t>(config_of(scenario).zero_dp_strategy); }
  std::string described(const Scenario& scenario) const override {
    const std::string options = config_of(scenario).json_text();
    return options == "{}" ? "default options" : "options " + options;
  }

  std::span<const Entry> catalogue() const override { return megatron_fsdp::catalogue(); }
  std::span<const UseRule> use_rules() const override { return megatron_fsdp_use_rules(); }
  UseReport use_of(const Scenario& scenario, const Timeline& timeline) const override { return megatron_fsdp_use_of(scenario, timeline, config_of(scenario)); }
  const History* history() const override { return &megatron_fsdp::history(); }
  const UserConfigReader* user_config() const override { return &user_config_reader(); }
  const SearchSpace* search_space() const override { return &megatron_fsdp::search_space(); }
};

}  // namespace

const Framework* framework() {
  static const MegatronFsdpFramework it;
  return &it;
}

}  // namespace gradledger::megatron_fsdp
