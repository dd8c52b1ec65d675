// fsdp_config of accelerate or of a Trainer, and the wrappers' own arguments: what FullyShardedDataParallel and fully_shard read alike.
#pragma once

#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sim/frameworks/user_config.h"

namespace gradledger::torch {

struct PluginKeys {
  std::string schema;                              // of a scenario's configuration: keys of it are taken as they are
  std::span<const std::string_view> taken, inert;  // without "fsdp_"; inert beside those that no wrapper's gradients depend on
};

class PluginReading {
 public:
  virtual ~PluginReading() = default;

  // Keys with and without "fsdp_" before them.
  UserConfig read(const nlohmann::json& given, const UserConfigHints& hints);

 protected:
  explicit PluginReading(PluginKeys keys) : keys_(std::move(keys)) {}

  // One of keys_.taken, which no key of the schema is.
  virtual void take_own(const std::string& name, const nlohmann::json& value, const std::string& pointer) = 0;
  // Behind the keys and the dtypes of the arguments.
  virtual void finish(const UserConfigHints& /*hints*/) {}

  void expected(const nlohmann::json& value, const std::string& pointer, const std::string& what);
  // true, "true": files of accelerate have both. `otherwise`: what a scenario means without the key, which is left out then.
  void flag(const char* key, const nlohmann::json& value, const std::string& pointer, std::optional<bool> otherwise);
  // Policies by which modules become instances of their own.
  void wrap(const nlohmann::json& value, const std::string& pointer);
  // A dtype for both, or an object of them; `flags`: keys of it beside the dtypes.
  void precision(const nlohmann::json& value, const std::string& pointer, std::span<const std::string_view> flags = {});
  // What stands beside it and has no model: true, or anything in it.
  void no_model(const nlohmann::json& value, const std::string& pointer, const std::string& of);

  UserConfig out_;

 private:
  void take(const std::string& name, const nlohmann::json& value, const std::string& pointer);
  void take_unknown(const std::string& name, const std::string& pointer, const nlohmann::json& known);
  void take_precision(const TrainingArguments& arguments);
  void take_layers(const std::vector<std::vector<std::string>>& layers);

  PluginKeys keys_;
};

// Each of the keys left out; and reductions in fp32, where others are asked for by what `reduced_by` names.
std::vector<ConfigChange> plainer(const nlohmann::json& config, std::initializer_list<const char*> keys, const std::string& reduced_by);

std::string lower_case(std::string text);
std::string upper_case(std::string text);

}  // namespace gradledger::torch
