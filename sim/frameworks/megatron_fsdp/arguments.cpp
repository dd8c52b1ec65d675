#include "sim/frameworks/megatron_fsdp/arguments.h"

#include <utility>
#include <vector>

#include "sim/scenario/json_reader.h"
#include "sim/scenario/schema.h"
#include "sim/scenario/spelling.h"

namespace gradledger::megatron_fsdp {

using nlohmann::json;

UserConfig ArgumentsReading::read(const json& given, const UserConfigHints& hints) {
  if (!given.is_object()) {
    out_.errors.push_back({"", "is no object; expected arguments of " + function_});
    return std::move(out_);
  }
  for (const auto& [name, value] : given.items()) take(name, value, "/" + pointer_token(name));
  out_.model_dtype = hints.arguments.fp16.value_or(false) ? "fp16" : hints.arguments.bf16.value_or(true) ? "bf16" : "fp32";
  if (!hints.arguments.bf16 && !hints.arguments.fp16) out_.filled.push_back({"dtype of the model", "bf16", "fully_shard leaves it to the model"});
  if (!hints.layers.empty() && !out_.config.contains("units")) out_.config["units"] = hints.layers;
  return std::move(out_);
}

void ArgumentsReading::own(const std::string& name, const json& value, const std::string& pointer) {
  const json& known = scenario_schema().at(json::json_pointer(schema_))["properties"];
  if (known.contains(name)) return put(name, value, pointer);
  std::vector<std::string> names{"mixed_precision_policy"};
  for (const auto& [key, unused] : known.items()) names.push_back(key);
  out_.unknown.push_back(pointer + suggestion(name, names));
}

void ArgumentsReading::put(const std::string& key, const json& value, const std::string& pointer) {
  if (auto problem = check_against_part(schema_ + "/properties/" + key, value, pointer)) out_.errors.push_back(std::move(*problem));
  else out_.config[key] = value;
}

void ArgumentsReading::policy(const json& value, const std::string& pointer) {
  if (!value.is_object()) return out_.errors.push_back({pointer, "is " + value.dump() + "; expected an object of dtypes"});
  json written = json::object();
  for (const auto& [key, dtype] : value.items()) {
    std::string name = dtype.is_string() ? dtype.get<std::string>() : "";
    if (name.starts_with("torch.")) name = name.substr(6);
    written[key] = dtype.is_null() ? dtype : json(name == "bfloat16" ? "bf16" : name == "float32" || name == "float" ? "fp32" : name.empty() ? dtype.dump() : name);
  }
  put("mixed_precision", written, pointer);
}

}  // namespace gradledger::megatron_fsdp
