#include "sim/frameworks/torch/ddp/framework.h"

#include <algorithm>
#include <array>
#include <string>

#include "sim/frameworks/torch/ddp/admission.h"
#include "sim/frameworks/torch/ddp/buffers.h"
#include "sim/frameworks/torch/ddp/calls.h"
#include "sim/frameworks/torch/ddp/catalogue.h"
#include "sim/frameworks/torch/ddp/config_json.h"
#include "sim/frameworks/torch/ddp/contract.h"
#include "sim/frameworks/torch/ddp/distributed_data_parallel.h"
#include "sim/frameworks/torch/ddp/documented_use.h"
#include "sim/frameworks/torch/ddp/history.h"
#include "sim/frameworks/torch/ddp/search/search_space.h"
#include "sim/frameworks/torch/ddp/user_config.h"
#include "sim/frameworks/torch/history/releases.h"
#include "sim/frameworks/loop_admission.h"

namespace gradledger::torch {
namespace {

using nlohmann::json;

const DdpConfig& config_of(const Scenario& scenario) { return scenario.engine.config.as<DdpConfig>(); }

// What the engine serves, and recordings hold it to, but the oracle has no contract for.
std::optional<InputError> not_judged(const Scenario& s) { return config_of(s).steps_inside_backwards() ? inside_backwards_problem(s) : std::nullopt; }

class DistributedDataParallelFramework final : public Framework {
 public:
  std::string_view id() const override { return "ddp"; }
  std::string_view title() const override { return "PyTorch DistributedDataParallel"; }

  Result<FrameworkConfig> config_from_json(const json& config, std::uint32_t, const std::string& where) const override {
    auto read = ddp_config_from_json(config, where);
    if (!read) return read.error();
    return FrameworkConfig(std::move(read).value());
  }
  std::span<const FrameworkEvent> events() const override { return data_parallel::call_events(); }
  Result<FrameworkValue> event_from_json(const FrameworkEvent& event, const json& arguments, const std::string& where) const override {
    auto read = data_parallel::call_from_json(data_parallel::method_named(event.name), arguments, where);
    if (!read) return read.error();
    return FrameworkValue(std::move(read).value());
  }
  std::optional<ReductionSwitch> switches_reductions(const FrameworkEvent&, const FrameworkValue& value) const override {
    return data_parallel::switches_reductions(value.as<data_parallel::Call>());
  }
  Result<Dtype> model_dtype(FrameworkConfig&, const json&, std::optional<Dtype> stated) const override { return stated.value_or(Dtype::float32); }

  std::optional<InputError> as_of_problem(const AsOf& as_of) const override { return ddp_history().problem(as_of); }
  std::optional<std::string> as_of_note(std::string_view as_of) const override { return release_note(as_of); }
  std::optional<AsOf> installed(const std::map<std::string, std::string>& releases) const override { return installed_release(releases); }
  Result<Contract> contract(const Scenario& scenario) const override {
    if (auto problem = as_of_problem(scenario.engine.as_of)) return *problem;
    return ddp_contract(scenario, config_of(scenario));
  }

  bool lays_out_ranks() const override { return true; }
  std::span<const EngineInfo> engines() const override {
    static constexpr std::array infos{
        EngineInfo{"DistributedDataParallel", "framework ddp: PyTorch 2.4 to 2.15", "param.grad, by autograd, replicated; buckets on the way", "recorded"}};
    return infos;
  }
  Result<const EngineInfo*> select(const Scenario& scenario) const override {
    if (auto problem = as_of_problem(scenario.engine.as_of)) return *problem;
    if (auto problem = ddp_refusal(scenario, config_of(scenario))) return *problem;
    if (auto problem = not_yet_there(scenario, config_of(scenario))) return *problem;
    if (auto problem = not_judged(scenario)) return *problem;
    return &engines().front();
  }
  EngineFactory factory(const Scenario& scenario) const override {
    return [&config = config_of(scenario)](const EngineContext& context) { return std::make_unique<DistributedDataParallel>(context, config); };
  }

  std::span<const BufferFamily> buffer_families() const override { return ddp_buffer_families(); }
  // Weights, gradients, buckets with a cast of each, the delayed gradients' fp32 buffer, moments.
  // PowerSGD holds what it left out, what it was given, and the parts that it sends.
  std::uint64_t rank_bytes(const Scenario& scenario) const override { return scenario.numel() * ((config_of(scenario).power_sgd ? 9 : 6) * size_of(Dtype::float32) + 8); }
  std::string described(const Scenario& scenario) const override {
    const std::string options = config_of(scenario).json_text();
    return options == "{}" ? "default options" : "options " + options;
  }

  std::span<const Entry> catalogue() const override { return ddp_catalogue(); }
  std::span<const UseRule> use_rules() const override { return ddp_use_rules(); }
  UseReport use_of(const Scenario& scenario, const Timeline& timeline) const override { return ddp_use_of(scenario, timeline, config_of(scenario)); }
  const SearchSpace* search_space() const override { return &data_parallel::search_space(); }
  const History* history() const override { return &ddp_history(); }
  const UserConfigReader* user_config() const override { return &ddp_user_config_reader(); }
};

}  // namespace

const Framework* ddp() {
  static const DistributedDataParallelFramework it;
  return &it;
}

}  // namespace gradledger::torch
