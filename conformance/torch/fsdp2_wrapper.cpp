#include <algorithm>

#include "sim/frameworks/torch/fsdp2/admission.h"
#include "sim/frameworks/torch/fsdp2/calls.h"
#include "sim/frameworks/torch/fsdp2/config_json.h"
#include "sim/frameworks/torch/fsdp2/contract.h"
#include "sim/frameworks/torch/fsdp2/fsdp_module.h"
#include "sim/frameworks/torch/fsdp2/modules.h"
#include "sim/frameworks/torch/history/releases.h"
#include "conformance/torch/units.h"
#include "conformance/torch/wrapper.h"

namespace gradledger::conform::torch {
namespace {

using nlohmann::json;
namespace fsdp2 = ::gradledger::torch::fully_shard;

const fsdp2::Fsdp2Config& fsdp2_config_of(const Scenario& scenario) { return scenario.engine.config.as<fsdp2::Fsdp2Config>(); }

class Fsdp2 final : public Wrapper {
 public:
  void configure(const Run& run, Scenario& scenario) const override {
    json config = run.config;
    take_frozen(config, run, scenario);
    take_mesh(config, run, scenario);
    for (const char* recorders : {"groups", "unwrapped", "set", "set_each"}) config.erase(recorders);
    const auto rename = [&](const char* theirs, const char* ours) {
      if (config.contains(theirs)) config[ours] = config[theirs];
      config.erase(theirs);
    };
    rename("mp_policy", "mixed_precision");
    rename("cpu_offload", "offload");
    config["units"] = units_of(run).wrapped;
    config["nested"] = units_of(run).nested;
    config.erase("rows");
    for (std::uint32_t p = 0; p < run.sizes.size(); ++p)
      if (run.rows[p] != run.sizes[p]) config["rows"][parameter_name(p)] = run.rows[p];
    if (run.root_at_end) config["root_parameters_last"] = true;
    if (run.input_requires_grad) config["input_requires_grad"] = true;
    if (calls_unused(run)) config["calls_unused_units"] = true;
    if (const auto scale = first_scale(run)) config["grad_scaler"] = {{"init_scale", *scale}};
    auto read = fsdp2::fsdp2_config_from_json(config, "/spec/config");
    if (!read) throw Inexpressible{"configuration: " + read.error().text()};
    scenario.engine.framework = "fsdp2";
    scenario.engine.as_of = ::gradledger::torch::installed_release({{"torch", run.version}});
    scenario.engine.config = FrameworkConfig(std::move(read).value());
  }

  // "set": of the root; "set_each": of every module.
  std::vector<ScriptItem> before_the_script(const Run& run) const override {
    std::vector<ScriptItem> out;
    const std::uint32_t units = static_cast<std::uint32_t>(units_of(run).wrapped.size());
    for (const char* key : {"set", "set_each"}) {
      if (!run.config.contains(key)) continue;
      for (const Field& setting : Field(run.config[key], std::string("/spec/config/") + key).entries(limits_of_settings)) {
        out.push_back(event(setting.at(0), json{{"value", setting.at(1).json()}}));
        for (std::uint32_t u = 0; std::string(key) == "set_each" && u < units; ++u) out.push_back(event(setting.at(0), json{{"value", setting.at(1).json()}, {"unit", u}}));
      }
    }
    return out;
  }

  void own_operation(const Run& run, const Field& operation, ScriptItem& into) const override {
    const std::string& kind = operation.at(0).text(limits::name_length_max);
    if (kind != "set" && kind != "call") throw Inexpressible{"the operation " + kind};
    json arguments = json::object();
    if (kind == "set") arguments["value"] = operation.at(2).json();
    const Field options = last_of(operation);
    if (options.has("recurse")) arguments["recurse"] = options.at("recurse").flag();
    const std::string module = options.has("module") ? options.at("module").text(limits::name_length_max) : "root";
    if (module != "root") arguments["unit"] = unit_of(run, module);
    const ScriptItem made = event(operation.at(1), arguments);
    into.kind = made.kind;
    into.event = made.event;
  }
  std::string clips_over() const override { return "world"; }

  std::optional<InputError> refusal(const Scenario& scenario) const override { return fsdp2::fsdp2_refusal(scenario, fsdp2_config_of(scenario)); }
  Contract contract(const Scenario& scenario) const override {
    return fsdp2::fsdp2_contract(scenario, fsdp2_config_of(scenario), fsdp2::behaviour_at(scenario.engine.as_of).value());
  }
  EngineFactory engines(const Scenario& scenario) const override {
    return [&config = fsdp2_config_of(scenario), behaviour = fsdp2::behaviour_at(scenario.engine.as_of).value()](const EngineContext& context) {
      return std::make_unique<fsdp2::FsdpModule>(context, config, behaviour);
    };
  }
  std::uint64_t numel_on(const Scenario& scenario, std::uint32_t rank, std::uint32_t parameter) const override {
    const fsdp2::Modules modules = fsdp2::modules_of(scenario, fsdp2_config_of(scenario), rank);
    return modules.cuts[parameter].numel(modules.shard.index_of(rank));
  }
  // Partial sums are named by the first parameter of their group.
  std::string recorded_name(const std::string& buffer) const override {
    const std::string prefix = "_partial_reduce_output[param";
    if (!buffer.starts_with(prefix)) return buffer;
    return "unit" + buffer.substr(prefix.size(), buffer.size() - prefix.size() - 1) + "._partial_reduce_output";
  }

 private:
  static constexpr std::uint64_t limits_of_settings = 64;

  static ScriptItem event(const Field& method, const json& arguments) {
    const std::string name = method.json().is_string() ? method.json().get<std::string>() : method.json().dump();
    const auto known = fsdp2::call_events();
    if (std::none_of(known.begin(), known.end(), [&](const FrameworkEvent& e) { return e.name == name; })) throw Inexpressible{"the method " + name};
    auto call = fsdp2::call_from_json(fsdp2::method_named(name), arguments, "");
    if (!call) throw Inexpressible{name + ": " + call.error().text()};
    ScriptItem item;
    item.kind = ScriptKind::of_framework;
    item.event = {name, FrameworkValue(std::move(call).value()), false, false, std::nullopt};
    return item;
  }

  static std::uint32_t unit_of(const Run& run, const std::string& module) {
    const std::vector<std::uint32_t> number = number_of_units(run);
    for (std::uint32_t u = 0; u < number.size(); ++u)
      if (module == "unit" + std::to_string(u) && number[u] != not_wrapped) return number[u];
    throw Inexpressible{"a method of " + module + ", which is no module of fully_shard"};
  }
};

}  // namespace

std::unique_ptr<Wrapper> fsdp2_wrapper() { return std::make_unique<Fsdp2>(); }

}  // namespace gradledger::conform::torch
