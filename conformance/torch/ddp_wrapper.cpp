#include "sim/frameworks/torch/ddp/admission.h"
#include "sim/frameworks/torch/ddp/config_json.h"
#include "sim/frameworks/torch/ddp/contract.h"
#include "sim/frameworks/torch/ddp/distributed_data_parallel.h"
#include "conformance/torch/wrapper.h"

namespace gradledger::conform::torch {
namespace {

using ::gradledger::torch::DdpConfig;
using nlohmann::json;

const DdpConfig& ddp_config_of(const Scenario& scenario) { return scenario.engine.config.as<DdpConfig>(); }

class Ddp final : public Wrapper {
 public:
  // The recorder's own keys aside, the configuration is the constructor's; it numbers parameters where a scenario names them.
  void configure(const Run& run, Scenario& scenario) const override {
    json config = run.config;
    take_frozen(config, run, scenario);
    const auto name = [](const json& number) { return "param" + number.dump(); };
    if (config.contains("delay_all_reduce")) {
      json& delayed = config["delay_all_reduce"];
      for (json& p : delayed["params"]) p = name(p);
      delayed["hook"] = name(delayed["hook"]);
    }
    if (const auto scale = first_scale(run)) config["grad_scaler"] = {{"init_scale", *scale}};
    auto read = ::gradledger::torch::ddp_config_from_json(config, "/spec/config");
    if (!read) throw Inexpressible{"configuration: " + read.error().text()};
    scenario.engine.framework = "ddp";
    scenario.engine.config = FrameworkConfig(std::move(read).value());
  }
  void own_operation(const Run&, const Field& operation, ScriptItem&) const override { throw Inexpressible{"the operation " + operation.at(0).json().get<std::string>()}; }
  std::string clips_over() const override { return "rank"; }
  bool tells_views() const override { return true; }

  std::optional<InputError> refusal(const Scenario& scenario) const override { return ::gradledger::torch::ddp_refusal(scenario, ddp_config_of(scenario)); }
  Contract contract(const Scenario& scenario) const override { return ::gradledger::torch::ddp_contract(scenario, ddp_config_of(scenario)); }
  EngineFactory engines(const Scenario& scenario) const override {
    return [&config = ddp_config_of(scenario)](const EngineContext& context) { return std::make_unique<::gradledger::torch::DistributedDataParallel>(context, config); };
  }
};

}  // namespace

std::unique_ptr<Wrapper> ddp_wrapper() { return std::make_unique<Ddp>(); }

}  // namespace gradledger::conform::torch
