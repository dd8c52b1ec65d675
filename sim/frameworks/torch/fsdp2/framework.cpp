#include "sim/frameworks/torch/fsdp2/framework.h"

#include <array>
#include <string>

#include "sim/frameworks/torch/fsdp2/admission.h"
#include "sim/frameworks/torch/fsdp2/behaviour.h"
#include "sim/frameworks/torch/fsdp2/buffers.h"
#include "sim/frameworks/torch/fsdp2/calls.h"
#include "sim/frameworks/torch/fsdp2/catalogue.h"
#include "sim/frameworks/torch/fsdp2/config_json.h"
#include "sim/frameworks/torch/fsdp2/contract.h"
#include "sim/frameworks/torch/fsdp2/documented_use.h"
#include "sim/frameworks/torch/fsdp2/fsdp_module.h"
#include "sim/frameworks/torch/fsdp2/modules.h"
#include "sim/frameworks/torch/fsdp2/not_judged.h"
#include "sim/frameworks/torch/fsdp2/search/search_space.h"
#include "sim/frameworks/torch/fsdp2/user_config.h"
#include "sim/frameworks/torch/history/releases.h"

namespace gradledger::torch {
namespace {

using namespace fully_shard;
using nlohmann::json;

const Fsdp2Config& fsdp2_config_of(const Scenario& scenario) { return scenario.engine.config.as<Fsdp2Config>(); }

class FullyShardFramework final : public Framework {
 public:
  std::string_view id() const override { return "fsdp2"; }
  std::string_view title() const override { return "PyTorch fully_shard"; }

  Result<FrameworkConfig> config_from_json(const json& config, std::uint32_t, const std::string& where) const override {
    auto read = fsdp2_config_from_json(config, where);
    if (!read) return read.error();
    return FrameworkConfig(std::move(read).value());
  }
  Result<Dtype> model_dtype(FrameworkConfig&, const json&, std::optional<Dtype> stated) const override { return stated.value_or(Dtype::float32); }
  std::span<const FrameworkEvent> events() const override { return call_events(); }
  Result<FrameworkValue> event_from_json(const FrameworkEvent& event, const json& arguments, const std::string& where) const override {
    auto read = call_from_json(method_named(event.name), arguments, where);
    if (!read) return read.error();
    return FrameworkValue(std::move(read).value());
  }
  std::optional<ReductionSwitch> switches_reductions(const FrameworkEvent&, const FrameworkValue& value) const override {
    return fully_shard::switches_reductions(value.as<Call>());
  }

  std::optional<InputError> as_of_problem(const AsOf& as_of) const override { return fully_shard::history().problem(as_of); }
  std::optional<std::string> as_of_note(std::string_view as_of) const override { return release_note(as_of); }
  std::optional<AsOf> installed(const std::map<std::string, std::string>& releases) const override { return installed_release(releases); }
  Result<Contract> contract(const Scenario& scenario) const override {
    const auto behaviour = behaviour_at(scenario.engine.as_of);
    if (!behaviour) return behaviour.error();
    return fsdp2_contract(scenario, fsdp2_config_of(scenario), *behaviour);
  }

  bool lays_out_ranks() const override { return true; }
  std::span<const EngineInfo> engines() const override {
    static constexpr std::array infos{
        EngineInfo{"FSDPModule", "framework fsdp2: PyTorch 2.4 to 2.15", "whole gradients while backwards are not reduced, then shards of them in param.grad", "recorded"}};
    return infos;
  }
  Result<const EngineInfo*> select(const Scenario& scenario) const override {
    if (auto problem = as_of_problem(scenario.engine.as_of)) return *problem;
    if (auto problem = fsdp2_refusal(scenario, fsdp2_config_of(scenario))) return *problem;
    if (auto problem = not_yet_there(scenario, fsdp2_config_of(scenario))) return *problem;
    if (auto problem = not_judged(scenario, fsdp2_config_of(scenario))) return *problem;
    return &engines().front();
  }
  EngineFactory factory(const Scenario& scenario) const override {
    return [&config = fsdp2_config_of(scenario), behaviour = behaviour_at(scenario.engine.as_of).value()](const EngineContext& context) {
      return std::make_unique<FsdpModule>(context, config, behaviour);
    };
  }

  std::span<const BufferFamily> buffer_families() const override { return fsdp2_buffer_families(); }
  // A shard of weights and moments; whole weights and gradients, own and accumulated; what is on its way, twice.
  // Each with the padding of a gather.
  std::uint64_t rank_bytes(const Scenario& scenario) const override {
    const std::uint32_t shards = shards_of(scenario, fsdp2_config_of(scenario));
    std::uint64_t padded = 0;
    for (const Parameter& p : scenario.parameters)
      if (!p.part || p.part->number == 0) padded += std::uint64_t{cut_of(p, fsdp2_config_of(scenario), shards).padded_numel()} * shards;
    return padded * (8 * size_of(Dtype::float32) + 8);
  }
  std::string described(const Scenario& scenario) const override {
    const std::string options = fsdp2_config_of(scenario).json_text();
    return options == "{}" ? "default options" : "options " + options;
  }

  std::span<const UseRule> use_rules() const override { return fsdp2_use_rules(); }
  UseReport use_of(const Scenario& scenario, const Timeline& timeline) const override { return fsdp2_use_of(scenario, timeline, fsdp2_config_of(scenario)); }
  const SearchSpace* search_space() const override { return &fully_shard::search_space(); }
  const History* history() const override { return &fully_shard::history(); }
  std::span<const Entry> catalogue() const override { return fully_shard::catalogue(); }
  const UserConfigReader* user_config() const override { return &fsdp2_user_config_reader(); }
};

}  // namespace

const Framework* fsdp2() {
  static const FullyShardFramework it;
  return &it;
}

}  // namespace gradledger::torch
