#include "sim/frameworks/megatron_fsdp/admission.h"
#include "sim/frameworks/megatron_fsdp/config_json.h"
#include "sim/frameworks/megatron_fsdp/contract.h"
#include "sim/frameworks/megatron_fsdp/megatron_fsdp_engine.h"
#include "sim/frameworks/megatron_fsdp/methods.h"
#include "conformance/torch/units.h"
#include "conformance/torch/wrapper.h"

namespace gradledger::conform::torch {
namespace {

using nlohmann::json;
namespace fsdp = ::gradledger::megatron_fsdp;

const fsdp::MegatronFsdpConfig& fsdp_config_of(const Scenario& scenario) { return scenario.engine.config.as<fsdp::MegatronFsdpConfig>(); }

class MegatronFsdp final : public Wrapper {
 public:
  void configure(const Run& run, Scenario& scenario) const override {
    json config = run.config;
    take_frozen(config, run, scenario);
    take_mesh(config, run, scenario);
    config["units"] = units_of(run).wrapped;
    auto read = fsdp::megatron_fsdp_config_from_json(config, "/spec/config");
    if (!read) throw Inexpressible{"configuration: " + read.error().text()};
    scenario.engine.framework = "megatron-fsdp";
    scenario.engine.as_of.base = run.version;
    scenario.engine.config = FrameworkConfig(std::move(read).value());
  }

  void own_operation(const Run&, const Field& operation, ScriptItem& into) const override {
    const std::string& kind = operation.at(0).text(limits::name_length_max);
    if (kind != fsdp::finish_event && (kind != "set" || operation.at(1).json() != fsdp::auto_sync_event)) throw Inexpressible{"the operation " + kind};
    const std::string name(kind == "set" ? fsdp::auto_sync_event : fsdp::finish_event);
    into.kind = ScriptKind::of_framework;
    into.event = {name, FrameworkValue(fsdp::Call{kind != "set" || operation.at(2).flag()}), false, false, std::nullopt};
  }
  std::string clips_over() const override { return "world"; }

  std::optional<InputError> refusal(const Scenario& scenario) const override { return fsdp::megatron_fsdp_refusal(scenario, fsdp_config_of(scenario)); }
  Contract contract(const Scenario& scenario) const override { return fsdp::megatron_fsdp_contract(scenario, fsdp_config_of(scenario)); }
  EngineFactory engines(const Scenario& scenario) const override {
    return [&config = fsdp_config_of(scenario), behaviour = fsdp::behaviour_of(scenario.engine.as_of).value()](const EngineContext& context) {
      return std::make_unique<fsdp::MegatronFsdpEngine>(context, config, behaviour);
    };
  }
  std::uint64_t numel_on(const Scenario& scenario, std::uint32_t rank, std::uint32_t parameter) const override {
    return fsdp::layout_of(scenario, fsdp_config_of(scenario), rank).owned_of(parameter).numel();
  }
  bool tells_offsets() const override { return false; }
  bool tells_gathers() const override { return false; }
};

}  // namespace

std::unique_ptr<Wrapper> megatron_fsdp_wrapper() { return std::make_unique<MegatronFsdp>(); }

}  // namespace gradledger::conform::torch
