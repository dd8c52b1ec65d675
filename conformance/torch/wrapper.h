// What recordings of a wrapper say in words of its own, and what replays them.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sim/base/result.h"
#include "sim/engine/engine.h"
#include "sim/scenario/contract.h"
#include "sim/scenario/scenario.h"
#include "conformance/fields.h"
#include "conformance/torch/run.h"

namespace gradledger::conform::torch {

// Thrown: why a run has no scenario.
struct Inexpressible {
  std::string why;
};

class Wrapper {
 public:
  virtual ~Wrapper() = default;

  // The recorder's configuration as the scenario's: parameters are there, and nothing else. Throws Inexpressible.
  virtual void configure(const Run& run, Scenario& scenario) const = 0;
  // Items that stand for what the recorder set before the first operation.
  virtual std::vector<ScriptItem> before_the_script(const Run& /*run*/) const { return {}; }
  // An operation that only this wrapper has. Throws Inexpressible.
  virtual void own_operation(const Run& run, const Field& operation, ScriptItem& into) const = 0;
  // The group of clip_grad_norm_'s norm.
  virtual std::string clips_over() const = 0;

  virtual std::optional<InputError> refusal(const Scenario& scenario) const = 0;
  virtual Contract contract(const Scenario& scenario) const = 0;
  virtual EngineFactory engines(const Scenario& scenario) const = 0;
  // Elements of a parameter that are a rank's own.
  virtual std::uint64_t numel_on(const Scenario& scenario, std::uint32_t /*rank*/, std::uint32_t parameter) const { return scenario.parameters[parameter].numel; }
  // Whether its recorder tells where a gradient lies in larger storage.
  virtual bool tells_views() const { return false; }
  // Whether it tells where in its parameter a gradient begins.
  virtual bool tells_offsets() const { return true; }
  // Whether it gathers into a list of tensors, which the recorder names so.
  virtual bool gathers_into_lists() const { return false; }
  // Whether the recorder has gathers of weights among its collectives.
  virtual bool tells_gathers() const { return true; }
  // What the recorder calls a buffer of the engine's.
  virtual std::string recorded_name(const std::string& buffer) const { return buffer; }
};

// Precondition: is_torch_run() knows the framework.
std::unique_ptr<Wrapper> wrapper_of(const std::string& framework);
std::unique_ptr<Wrapper> ddp_wrapper();
std::unique_ptr<Wrapper> fsdp1_wrapper();
std::unique_ptr<Wrapper> fsdp2_wrapper();
std::unique_ptr<Wrapper> megatron_fsdp_wrapper();
std::unique_ptr<Wrapper> megatron_fsdp_v2_wrapper();

// "param3"
std::string parameter_name(std::uint32_t parameter);
// Takes the recorder's list of parameters that do not learn out of its configuration.
void take_frozen(nlohmann::json& config, const Run& run, Scenario& scenario);
// The first scale that losses are multiplied by, for the configuration; nothing without a scaler.
std::optional<nlohmann::json> first_scale(const Run& run);

}  // namespace gradledger::conform::torch
