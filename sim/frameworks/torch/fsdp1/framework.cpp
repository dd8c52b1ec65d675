#include "sim/frameworks/torch/fsdp1/framework.h"

#include <array>
#include <string>

#include "sim/frameworks/torch/fsdp1/admission.h"
#include "sim/frameworks/torch/fsdp1/behaviour.h"
#include "sim/frameworks/torch/fsdp1/buffers.h"
#include "sim/frameworks/torch/fsdp1/catalogue.h"
#include "sim/frameworks/torch/fsdp1/config_json.h"
#include "sim/frameworks/torch/fsdp1/contract.h"
#include "sim/frameworks/torch/fsdp1/documented_use.h"
#include "sim/frameworks/torch/fsdp1/fully_sharded.h"
#include "sim/frameworks/torch/fsdp1/search/search_space.h"
#include "sim/frameworks/torch/fsdp1/user_config.h"
#include "sim/frameworks/torch/history/releases.h"
#include "sim/frameworks/loop_admission.h"

namespace gradledger::torch::flat_sharded {
namespace {

using nlohmann::json;

const Fsdp1Config& fsdp1_config_of(const Scenario& scenario) { return scenario.engine.config.as<Fsdp1Config>(); }

class FlatShardedFramework final : public Framework {
 public:
  std::string_view id() const override { return "fsdp1"; }
  std::string_view title() const override { return "PyTorch FullyShardedDataParallel"; }

  Result<FrameworkConfig> config_from_json(const json& config, std::uint32_t, const std::string& where) const override {
    auto read = fsdp1_config_from_json(config, where);
    if (!read) return read.error();
    return FrameworkConfig(std::move(read).value());
  }
  Result<Dtype> model_dtype(FrameworkConfig&, const json&, std::optional<Dtype> stated) const override { return stated.value_or(Dtype::float32); }

  std::optional<InputError> as_of_problem(const AsOf& as_of) const override { return flat_sharded::history().problem(as_of); }
  std::optional<std::string> as_of_note(std::string_view as_of) const override { return release_note(as_of); }
  std::optional<AsOf> installed(const std::map<std::string, std::string>& releases) const override { return installed_release(releases); }
  Result<Contract> contract(const Scenario& scenario) const override {
    if (auto problem = as_of_problem(scenario.engine.as_of)) return *problem;
    return fsdp1_contract(scenario, fsdp1_config_of(scenario));
  }

  std::span<const EngineInfo> engines() const override {
    static constexpr std::array infos{EngineInfo{"FullyShardedDataParallel", "framework fsdp1: PyTorch 2.4 to 2.15",
                                                 "whole flat gradients while backwards are not reduced, then shards of them; with NO_SHARD averages in their place", "recorded"}};
    return infos;
  }
  Result<const EngineInfo*> select(const Scenario& scenario) const override {
    if (auto problem = as_of_problem(scenario.engine.as_of)) return *problem;
    if (auto problem = fsdp1_refusal(scenario, fsdp1_config_of(scenario))) return *problem;
    if (auto problem = not_judged(scenario)) return *problem;
    return &engines().front();
  }
  EngineFactory factory(const Scenario& scenario) const override {
    return [&config = fsdp1_config_of(scenario), behaviour = behaviour_at(scenario.engine.as_of).value()](const EngineContext& context) {
      return std::make_unique<FullyShardedDataParallel>(context, config, behaviour);
    };
  }

  std::span<const BufferFamily> buffer_families() const override { return fsdp1_buffer_families(); }
  // Weights and two moments, cut or whole; whole weights gathered; gradients that are accumulated, made, cast, padded and on the host; a shard of each.
  // Each with the padding of a gather.
  std::uint64_t rank_bytes(const Scenario& scenario) const override {
    std::uint64_t padded = 0;
    for (const std::uint64_t numel : gathered_numels(scenario, fsdp1_config_of(scenario))) padded += numel;
    return padded * (12 * size_of(Dtype::float32) + 8);
  }
  std::string described(const Scenario& scenario) const override {
    const std::string options = fsdp1_config_of(scenario).json_text();
    return options == "{}" ? "default options" : "options " + options;
  }

  std::span<const Entry> catalogue() const override { return flat_sharded::catalogue(); }
  std::span<const UseRule> use_rules() const override { return fsdp1_use_rules(); }
  UseReport use_of(const Scenario& scenario, const Timeline& timeline) const override { return fsdp1_use_of(scenario, timeline, fsdp1_config_of(scenario)); }
  const SearchSpace* search_space() const override { return &flat_sharded::search_space(); }
  const UserConfigReader* user_config() const override { return &fsdp1_user_config_reader(); }
  const History* history() const override { return &flat_sharded::history(); }
};

}  // namespace
}  // namespace gradledger::torch::flat_sharded

namespace gradledger::torch {

const Framework* fsdp1() {
  static const flat_sharded::FlatShardedFramework it;
  return &it;
}

}  // namespace gradledger::torch
