#include <algorithm>

#include "sim/frameworks/torch/fsdp1/admission.h"
#include "sim/frameworks/torch/fsdp1/config_json.h"
#include "sim/frameworks/torch/fsdp1/contract.h"
#include "sim/frameworks/torch/fsdp1/fully_sharded.h"
#include "sim/frameworks/torch/fsdp1/layout.h"
#include "sim/frameworks/torch/history/releases.h"
#include "conformance/torch/units.h"
#include "conformance/torch/wrapper.h"

namespace gradledger::conform::torch {
namespace {

using nlohmann::json;
namespace fsdp1 = ::gradledger::torch::flat_sharded;

const fsdp1::Fsdp1Config& fsdp1_config_of(const Scenario& scenario) { return scenario.engine.config.as<fsdp1::Fsdp1Config>(); }

class Fsdp1 final : public Wrapper {
 public:
  // Recorded on a CPU, where the scaler is PyTorch's plain one.
  void configure(const Run& run, Scenario& scenario) const override {
    json config = run.config;
    if (config.contains("comm_hook")) throw Inexpressible{"a communication hook, which asks for a stream and has none on a CPU"};
    if (run.ended_by == "SIGSEGV") throw Inexpressible{"a process that crashes, as a module computes with weights whose memory it has given up"};
    take_mesh(config, run, scenario);
    config.erase("unwrapped");
    if (config.contains("cpu_offload")) config["offload"] = config["cpu_offload"];
    config.erase("cpu_offload");
    config["computes_on_cpu"] = true;
    config["units"] = units_of(run).wrapped;
    if (calls_unused(run)) config["calls_unused_units"] = true;
    if (run.root_at_end || run.input_requires_grad) throw Inexpressible{"a root whose parameters are used last, or an input that requires gradients"};
    if (const auto scale = first_scale(run)) {
      config["grad_scaler"] = {{"init_scale", *scale}};
      config["plain_grad_scaler"] = true;
    }
    auto read = fsdp1::fsdp1_config_from_json(config, "/spec/config");
    if (!read) throw Inexpressible{"configuration: " + read.error().text()};
    scenario.engine.framework = "fsdp1";
    scenario.engine.as_of = ::gradledger::torch::installed_release({{"torch", run.version}});
    scenario.engine.config = FrameworkConfig(std::move(read).value());
  }
  void own_operation(const Run&, const Field& operation, ScriptItem&) const override { throw Inexpressible{"the operation " + operation.at(0).text(limits::name_length_max)}; }
  std::string clips_over() const override { return "world"; }
  bool tells_offsets() const override { return false; }
  bool gathers_into_lists() const override { return true; }

  std::optional<InputError> refusal(const Scenario& scenario) const override { return fsdp1::fsdp1_refusal(scenario, fsdp1_config_of(scenario)); }
  Contract contract(const Scenario& scenario) const override { return fsdp1::fsdp1_contract(scenario, fsdp1_config_of(scenario)); }
  EngineFactory engines(const Scenario& scenario) const override {
    return [&config = fsdp1_config_of(scenario), behaviour = fsdp1::behaviour_at(scenario.engine.as_of).value()](const EngineContext& context) {
      return std::make_unique<fsdp1::FullyShardedDataParallel>(context, config, behaviour);
    };
  }
  std::uint64_t numel_on(const Scenario& scenario, std::uint32_t rank, std::uint32_t parameter) const override {
    const fsdp1::Modules modules = fsdp1::modules_of(scenario, fsdp1_config_of(scenario), rank);
    const fsdp1::Layout& layout = modules.layouts[modules.module_of[parameter]];
    for (const fsdp1::Part& part : layout.parts)
      if (part.parameter == parameter) return layout.piece(part, modules.shards > 1 ? modules.shard.index_of(rank) : 0).numel;
    return 0;
  }
  // Flat parameters are numbered by the first of theirs.
  std::string recorded_name(const std::string& buffer) const override {
    const std::string prefix = "flat_param[param";
    const std::size_t end = buffer.find(']');
    if (!buffer.starts_with(prefix) || end == std::string::npos) return buffer;
    return "flat" + buffer.substr(prefix.size(), end - prefix.size()) + buffer.substr(end + 1);
  }
};

}  // namespace

std::unique_ptr<Wrapper> fsdp1_wrapper() { return std::make_unique<Fsdp1>(); }

}  // namespace gradledger::conform::torch
