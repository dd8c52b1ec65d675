#include "sim/scenario/optimizer_json.h"

#include <optional>
#include <utility>

#include "sim/base/contract.h"

namespace gradledger {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

template <class T>
void take(const json& from, const char* key, T& into) {
  if (const auto it = from.find(key); it != from.end()) into = it->get<T>();
}

template <class T>
void put(ordered_json& into, const char* key, const T& value, const T& by_default) {
  if (value != by_default) into[key] = value;
}

constexpr std::pair<const char*, OptimizerType> types[] = {
    {"SGD", OptimizerType::sgd}, {"Adam", OptimizerType::adam}, {"AdamW", OptimizerType::adamw}, {"Muon", OptimizerType::muon}};

OptimizerType type_named(const std::string& name) {
  for (const auto& [known, type] : types)
    if (name == known) return type;
  expects(false, "the schema admits an optimizer that has no type");
  return OptimizerType::sgd;
}

const char* name_of(OptimizerType type) {
  for (const auto& [name, known] : types)
    if (type == known) return name;
  return "";
}

// The keys that a type alone has.
std::optional<InputError> misplaced_key(const OptimizerConfig& optimizer, const json& from, const std::string& where) {
  const bool muon = optimizer.type == OptimizerType::muon;
  if (optimizer.torch_adam && !optimizer.adam())
    return InputError{where + "/torch_adam", std::string("is true, with type ") + name_of(optimizer.type) + "; expected it with Adam or AdamW alone"};
  if (from.contains("momentum") && !muon) return InputError{where + "/momentum", std::string("is given, with type ") + name_of(optimizer.type) + "; expected it with Muon alone"};
  for (const char* of_adam : {"betas", "eps"})
    if (muon && from.contains(of_adam)) return InputError{where + "/" + of_adam, "is given, with type Muon; expected lr, momentum and weight_decay"};
  return std::nullopt;
}

}  // namespace

Result<OptimizerConfig> optimizer_from_json(const json& optimizer, const std::string& where) {
  OptimizerConfig out;
  const std::string type = optimizer["type"];
  out.type = type_named(type);
  if (out.type == OptimizerType::muon) out.learning_rate = 0.02;
  else if (out.type != OptimizerType::sgd) out.learning_rate = 1e-3;  // no tolerance: the default of Adam
  const json& from = optimizer.contains("params") ? optimizer["params"] : optimizer;
  take(from, "lr", out.learning_rate);
  take(from, "eps", out.epsilon);
  take(from, "weight_decay", out.weight_decay);
  take(from, "torch_adam", out.torch_adam);
  take(from, "momentum", out.momentum);
  if (auto error = misplaced_key(out, from, where + (optimizer.contains("params") ? "/params" : ""))) return *error;
  if (from.contains("betas")) {
    out.beta1 = from["betas"][0];
    out.beta2 = from["betas"][1];
  }
  return out;
}

ordered_json optimizer_to_json(const OptimizerConfig& optimizer) {
  const OptimizerConfig defaults;
  ordered_json out = ordered_json::object();
  out["type"] = name_of(optimizer.type);
  out["lr"] = optimizer.learning_rate;
  if (optimizer.beta1 != defaults.beta1 || optimizer.beta2 != defaults.beta2) out["betas"] = {optimizer.beta1, optimizer.beta2};
  put(out, "eps", optimizer.epsilon, defaults.epsilon);
  put(out, "weight_decay", optimizer.weight_decay, defaults.weight_decay);
  put(out, "momentum", optimizer.momentum, defaults.momentum);
  put(out, "torch_adam", optimizer.torch_adam, defaults.torch_adam);
  return out;
}

}  // namespace gradledger
