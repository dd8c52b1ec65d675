#include "sim/frameworks/torch/outside/framework.h"

#include <algorithm>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "sim/frameworks/loop_contract.h"
#include "sim/numeric/dtype_names.h"
#include "sim/scenario/json_reader.h"
#include "sim/scenario/spelling.h"

namespace gradledger::torch {
namespace {

using nlohmann::json;

// As the driver is told it.
struct OutsideConfig {
  std::string text = "{}";

  bool operator==(const OutsideConfig&) const = default;
  std::string json_text() const { return text; }
};

std::optional<Dtype> dtype_of(const json& name) { return name.is_string() ? gradient_dtype_of(name.get_ref<const std::string&>()) : std::nullopt; }

struct Kind {
  std::string_view id, title, engine;
  std::vector<std::string> keys;  // of its configuration
  bool any_key = false;
};

class OutsideFramework final : public Framework {
 public:
  explicit OutsideFramework(Kind kind) : kind_(std::move(kind)), info_{kind_.engine, "where the driver runs it", "as the driver shows it", "not simulated"} {}

  std::string_view id() const override { return kind_.id; }
  std::string_view title() const override { return kind_.title; }
  bool simulated() const override { return false; }

  Result<FrameworkConfig> config_from_json(const json& config, std::uint32_t, const std::string& where) const override {
    for (const auto& [key, value] : config.items())
      if (!kind_.any_key && std::find(kind_.keys.begin(), kind_.keys.end(), key) == kind_.keys.end())
        return InputError{where + "/" + pointer_token(key), "is no option of " + std::string(kind_.title) + suggestion(key, kind_.keys)};
    if (kind_.any_key || !config.contains("mixed_precision")) return FrameworkConfig(OutsideConfig{config.dump()});
    json named = config;  // dtypes by our names, which drivers know
    json& mixed = named["mixed_precision"];
    if (!mixed.is_object()) return InputError{where + "/mixed_precision", "expected an object"};
    for (auto& [key, value] : mixed.items()) {
      const std::string here = where + "/mixed_precision/" + pointer_token(key);
      if (key != "param_dtype" && key != "reduce_dtype")
        return InputError{here, "is not served; expected param_dtype or reduce_dtype" + suggestion(key, {"param_dtype", "reduce_dtype"})};
      const auto dtype = dtype_of(value);
      if (!dtype) return InputError{here, "is " + value.dump().substr(0, 60) + "; expected \"fp32\", \"bf16\" or \"fp16\""};
      value = name_of(*dtype);
    }
    return FrameworkConfig(OutsideConfig{named.dump()});
  }
  Result<Dtype> model_dtype(FrameworkConfig&, const json&, std::optional<Dtype> stated) const override { return stated.value_or(Dtype::float32); }

  std::optional<InputError> as_of_problem(const AsOf& as_of) const override {
    if (as_of.switches.empty()) return std::nullopt;
    return InputError{"/engine/as_of", "has switches, which what runs outside has none of; expected a release"};
  }
  Result<Contract> contract(const Scenario& scenario) const override {
    if (auto problem = as_of_problem(scenario.engine.as_of)) return *problem;
    Contract out = loop_contract(scenario, kind_.any_key);
    if (kind_.any_key) {  // nobody documents when it reduces: what a step applies counts, and what a rank calls its own
      out.reduces_every_backward = false;
      out.mixes_own_and_averaged = false;
      out.steps_own_copies = false;
      // It divides by what is stated, each micro-batch or their sum: where that is no power of two, by a rounded quotient.
      if (out.divisor.denominator() == 1) out.steps_scalar = static_cast<std::uint32_t>(out.divisor.numerator());
    }
    return out;
  }

  std::span<const EngineInfo> engines() const override { return {}; }
  Result<const EngineInfo*> select(const Scenario& scenario) const override {
    if (auto problem = as_of_problem(scenario.engine.as_of)) return *problem;
    if (kind_.id == "torch" && scenario.world_size > 1)
      return InputError{"/world_size", "is above 1, and a bare optimizer is one process; expected 1, or a framework that reduces"};
    return &info_;
  }
  EngineFactory factory(const Scenario&) const override {
    return [](const EngineContext&) -> std::unique_ptr<Engine> { throw FrameworkError{"NotImplementedError", "is run by its driver alone"}; };
  }

  std::span<const BufferFamily> buffer_families() const override { return {}; }
  std::uint64_t rank_bytes(const Scenario& scenario) const override { return scenario.numel() * (6 * size_of(Dtype::float32)); }
  std::string described(const Scenario& scenario) const override {
    const std::string options = scenario.engine.config.json_text();
    return options == "{}" ? "default options" : "options " + options;
  }

  std::span<const UseRule> use_rules() const override { return {}; }
  UseReport use_of(const Scenario&, const Timeline&) const override { return {}; }

 private:
  Kind kind_;
  EngineInfo info_;
};

}  // namespace

const Framework* plain() {
  static const OutsideFramework it({"torch", "a PyTorch optimizer", "Optimizer", {}});
  return &it;
}

const Framework* external() {
  static const OutsideFramework it({"external", "a framework of your own", "external", {}, true});
  return &it;
}

}  // namespace gradledger::torch
