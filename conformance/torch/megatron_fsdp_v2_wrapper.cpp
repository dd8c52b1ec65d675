#include "sim/frameworks/megatron_fsdp/v2/admission.h"
#include "sim/frameworks/megatron_fsdp/v2/config_json.h"
#include "sim/frameworks/megatron_fsdp/v2/contract.h"
#include "sim/frameworks/megatron_fsdp/v2/fsdp_module.h"
#include "conformance/torch/units.h"
#include "conformance/torch/wrapper.h"

namespace gradledger::conform::torch {
namespace {

using nlohmann::json;
namespace v2 = ::gradledger::megatron_fsdp::v2;

const v2::V2Config& v2_config_of(const Scenario& scenario) { return scenario.engine.config.as<v2::V2Config>(); }

class MegatronFsdpV2 final : public Wrapper {
 public:
  void configure(const Run& run, Scenario& scenario) const override {
    json config = run.config;
    take_frozen(config, run, scenario);
    take_mesh(config, run, scenario);
    config["units"] = units_of(run).wrapped;
    if (calls_unused(run)) config["calls_unused_units"] = true;
    auto read = v2::v2_config_from_json(config, "/spec/config");
    if (!read) throw Inexpressible{"configuration: " + read.error().text()};
    scenario.engine.framework = "megatron-fsdp-v2";
    scenario.engine.as_of.base = run.version;
    if (run.version == "head") scenario.engine.as_of.switches["raises_unfinished"] = "yes";  // Megatron-LM's, of which there is no release
    scenario.engine.config = FrameworkConfig(std::move(read).value());
  }

  void own_operation(const Run&, const Field& operation, ScriptItem&) const override { throw Inexpressible{"the operation " + operation.at(0).text(limits::name_length_max)}; }
  std::string clips_over() const override { return "world"; }

  std::optional<InputError> refusal(const Scenario& scenario) const override { return v2::v2_refusal(scenario, v2_config_of(scenario)); }
  Contract contract(const Scenario& scenario) const override { return v2::v2_contract(scenario, v2_config_of(scenario)); }
  EngineFactory engines(const Scenario& scenario) const override {
    return [&config = v2_config_of(scenario), behaviour = v2::behaviour_of(scenario.engine.as_of).value()](const EngineContext& context) {
      return std::make_unique<v2::FsdpModules>(context, config, behaviour);
    };
  }
  std::uint64_t numel_on(const Scenario& scenario, std::uint32_t rank, std::uint32_t parameter) const override {
    return v2::layout_of(scenario, v2_config_of(scenario), rank).owned_of(parameter).numel();
  }
  bool tells_offsets() const override { return false; }
  bool tells_gathers() const override { return false; }
};

}  // namespace

std::unique_ptr<Wrapper> megatron_fsdp_v2_wrapper() { return std::make_unique<MegatronFsdpV2>(); }

}  // namespace gradledger::conform::torch
