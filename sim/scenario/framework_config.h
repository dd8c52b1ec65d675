// What the reader of scenarios asks of a framework: its configuration, and events of its own.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "sim/base/result.h"
#include "sim/numeric/dtype.h"
#include "sim/scenario/catalogue.h"
#include "sim/scenario/framework_value.h"
#include "sim/scenario/reductions.h"

namespace gradledger {

using FrameworkConfig = FrameworkValue;

// An event that a framework alone has, by the name that scripts call it: {"event": {"name": "flush"}}.
struct FrameworkEvent {
  std::string_view name;
  std::string_view says;        // a sentence
  bool reduces = false;         // by its documentation what the window has so far is reduced behind it
  bool heeds_switches = false;  // but for what a switch holds back
};

// What the reader of scenarios asks of the framework that one names.
class ConfigReader {
 public:
  virtual ~ConfigReader() = default;

  // `config`: an object; `where`: its pointer. The schema of scenarios says nothing of what is in it. Errors: keys and values that are not its
  // own, or do not fit each other.
  virtual Result<FrameworkConfig> config_from_json(const nlohmann::json& config, std::uint32_t data_parallel_ranks, const std::string& where) const = 0;

  // Events of its own.
  virtual std::span<const FrameworkEvent> events() const { return {}; }
  // What one of them is told: its object without "name" and "ranks". Errors: keys and values that are not its own, by their pointers.
  virtual Result<FrameworkValue> event_from_json(const FrameworkEvent& event, const nlohmann::json& arguments, const std::string& where) const;
  // What one of them switches of the reductions of backwards behind it, by the documentation; nothing where it changes nothing of that.
  virtual std::optional<ReductionSwitch> switches_reductions(const FrameworkEvent& /*event*/, const FrameworkValue& /*value*/) const { return std::nullopt; }

  // The dtype that /model_dtype and the configuration say together; either alone is enough. Errors: they contradict each other.
  virtual Result<Dtype> model_dtype(FrameworkConfig& config, const nlohmann::json& given, std::optional<Dtype> stated) const = 0;

  // Its known defects, which a scenario may cover.
  virtual std::span<const Entry> catalogue() const { return {}; }
};

// The frameworks that there are.
struct ConfigReaders {
  const ConfigReader* (*named)(std::string_view framework);  // by the id that /engine/framework gives; null where there is none such
  std::vector<std::string> (*ids)();
};

}  // namespace gradledger
