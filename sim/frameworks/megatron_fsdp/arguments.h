// Arguments of a fully_shard of Megatron-FSDP, of either version: those that a scenario writes alike are taken as its schema has them.
#pragma once

#include <string>

#include "sim/frameworks/user_config.h"

namespace gradledger::megatron_fsdp {

class ArgumentsReading {
 public:
  virtual ~ArgumentsReading() = default;

  // Errors have JSON pointers into `given`.
  UserConfig read(const nlohmann::json& given, const UserConfigHints& hints);

 protected:
  // schema: the place of the configuration's in the scenario's. function: whose arguments they are.
  ArgumentsReading(std::string schema, std::string function) : schema_(std::move(schema)), function_(std::move(function)) {}

  virtual void take(const std::string& name, const nlohmann::json& value, const std::string& pointer) = 0;

  // An argument of the same name as a scenario's key, or one that nobody knows.
  void own(const std::string& name, const nlohmann::json& value, const std::string& pointer);
  void put(const std::string& key, const nlohmann::json& value, const std::string& pointer);
  // A MixedPrecisionPolicy as scenarios write it: "torch.bfloat16", "bfloat16" and "bf16" are one dtype; null is none of its own.
  void policy(const nlohmann::json& value, const std::string& pointer);

  UserConfig out_;

 private:
  const std::string schema_, function_;
};

}  // namespace gradledger::megatron_fsdp
