#include "sim/frameworks/megatron/framework.h"

#include <algorithm>
#include <array>
#include <string>

#include "sim/frameworks/megatron/admission.h"
#include "sim/frameworks/megatron/behaviour.h"
#include "sim/frameworks/megatron/buffers.h"
#include "sim/frameworks/megatron/catalogue.h"
#include "sim/frameworks/megatron/config_json.h"
#include "sim/frameworks/megatron/contract.h"
#include "sim/frameworks/megatron/documented_use.h"
#include "sim/frameworks/megatron/engine_setup.h"
#include "sim/frameworks/megatron/events.h"
#include "sim/frameworks/megatron/history.h"
#include "sim/frameworks/megatron/megatron_engine.h"
#include "sim/frameworks/megatron/parallel_groups.h"
#include "sim/frameworks/megatron/planned_buffers.h"
#include "sim/frameworks/megatron/search/search_space.h"
#include "sim/frameworks/megatron/user_config.h"

namespace gradledger::megatron {
namespace {

using nlohmann::json;

const MegatronConfig& config_of(const Scenario& scenario) { return scenario.engine.config.as<MegatronConfig>(); }

std::optional<InputError> problem_of(const AsOf& as_of) {
  const auto behaviour = behaviour_of(as_of);
  return behaviour ? std::nullopt : std::optional(behaviour.error());
}

// Elements of padding on the rank that has the most. What is refused later anyway has none.
std::uint64_t most_padding(const Scenario& s, const MegatronConfig& config) {
  if (!behaviour_of(s.engine.as_of) || instances_problem(s, config.ddp.num_distributed_optimizer_instances)) return 0;
  std::uint64_t most = 0;
  const WorldGroups groups(s);
  for (std::uint32_t r = 0; r < s.world_size; ++r) {
    const SharedSetup setup = make_setup({.scenario = &s, .rank = r}, groups, config, Machine::device);
    std::uint64_t padding = 0;
    for (const PlannedBuffer& planned : planned_buffers(*setup)) {
      padding += buffer_numel(planned.laid, planned.rules);
      for (const LaidParameter& p : planned.laid) padding -= p.numel;
    }
    most = std::max(most, padding);
  }
  return most;
}

class MegatronFramework final : public Framework {
 public:
  std::string_view id() const override { return "megatron"; }
  std::string_view title() const override { return "Megatron-Core"; }

  Result<FrameworkConfig> config_from_json(const json& config, std::uint32_t, const std::string& where) const override {
    auto read = megatron_config_from_json(config, where);
    if (!read) return read.error();
    return FrameworkConfig(std::move(read).value());
  }
  std::span<const FrameworkEvent> events() const override { return own_events; }
  Result<Dtype> model_dtype(FrameworkConfig&, const json&, std::optional<Dtype> stated) const override { return stated.value_or(Dtype::float32); }

  std::optional<InputError> as_of_problem(const AsOf& as_of) const override { return problem_of(as_of); }
  std::optional<std::string> as_of_note(std::string_view as_of) const override { return release_note(as_of); }
  std::optional<AsOf> installed(const std::map<std::string, std::string>& releases) const override {
    const auto found = releases.find("megatron-core");
    if (found == releases.end()) return AsOf{};
    AsOf out{found->second.substr(0, found->second.find('+')), {}};
    return problem_of(out) ? AsOf{} : out;
  }
  Result<Contract> contract(const Scenario& scenario) const override {
    const auto behaviour = behaviour_of(scenario.engine.as_of);
    if (!behaviour) return behaviour.error();
    return megatron_contract(scenario, config_of(scenario), *behaviour);
  }

  bool lays_out_ranks() const override { return true; }
  std::span<const EngineInfo> engines() const override {
    static constexpr std::array infos{EngineInfo{"MegatronCore", "framework megatron: Megatron-Core 0.8.0 and later",
                                                 "main_grad, in contiguous buffers, fp32 or the model's dtype; buckets reduced in place", "recorded"}};
    return infos;
  }
  Result<const EngineInfo*> select(const Scenario& scenario) const override {
    if (auto problem = megatron_refusal(scenario, config_of(scenario))) return *problem;
    return &engines().front();
  }
  EngineFactory factory(const Scenario& scenario) const override {
    return [groups = WorldGroups(scenario), &config = config_of(scenario)](const EngineContext& context) {
      return std::make_unique<MegatronEngine>(make_setup(context, groups, config, Machine::device));
    };
  }

  std::span<const BufferFamily> buffer_families() const override { return megatron_buffer_families(); }
  // Weights, gradients, the buffers with their padding, masters with their gradients, moments.
  std::uint64_t rank_bytes(const Scenario& scenario) const override { return (scenario.numel() + most_padding(scenario, config_of(scenario))) * 8 * size_of(Dtype::float32); }
  std::string described(const Scenario& scenario) const override {
    const std::string options = config_of(scenario).json_text();
    return options == "{}" ? "default options" : "options " + options;
  }

  std::span<const Entry> catalogue() const override { return megatron::catalogue(); }
  std::span<const UseRule> use_rules() const override { return megatron_use_rules(); }
  UseReport use_of(const Scenario& scenario, const Timeline& timeline) const override { return megatron_use_of(scenario, timeline, config_of(scenario)); }
  const History* history() const override { return &megatron::history(); }
  const SearchSpace* search_space() const override { return &megatron::search_space(); }
  const UserConfigReader* user_config() const override { return &megatron_user_config_reader(); }
};

}  // namespace

const Framework* framework() {
  static const MegatronFramework it;
  return &it;
}

}  // namespace gradledger::megatron
