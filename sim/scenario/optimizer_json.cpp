#include "sim/scenario/optimizer_json.h"

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

}  // namespace

Result<OptimizerConfig> optimizer_from_json(const json& optimizer, const std::string& where) {
  OptimizerConfig out;
  const std::string type = optimizer["type"];
  out.type = type == "SGD" ? OptimizerType::sgd : type == "Adam" ? OptimizerType::adam : OptimizerType::adamw;
  if (out.type != OptimizerType::sgd) out.learning_rate = 1e-3;  // no tolerance: the default of Adam
  const json& from = optimizer.contains("params") ? optimizer["params"] : optimizer;
  take(from, "lr", out.learning_rate);
  take(from, "eps", out.epsilon);
  take(from, "weight_decay", out.weight_decay);
  take(from, "torch_adam", out.torch_adam);
  if (out.torch_adam && out.type == OptimizerType::sgd)
    return InputError{where + (optimizer.contains("params") ? "/params" : "") + "/torch_adam", "is true, with type SGD; expected it with Adam or AdamW alone"};
  if (from.contains("betas")) {
    out.beta1 = from["betas"][0];
    out.beta2 = from["betas"][1];
  }
  return out;
}

ordered_json optimizer_to_json(const OptimizerConfig& optimizer) {
  const OptimizerConfig defaults;
  ordered_json out = ordered_json::object();
  out["type"] = optimizer.type == OptimizerType::sgd ? "SGD" : optimizer.type == OptimizerType::adam ? "Adam" : "AdamW";
  out["lr"] = optimizer.learning_rate;
  if (optimizer.beta1 != defaults.beta1 || optimizer.beta2 != defaults.beta2) out["betas"] = {optimizer.beta1, optimizer.beta2};
  put(out, "eps", optimizer.epsilon, defaults.epsilon);
  put(out, "weight_decay", optimizer.weight_decay, defaults.weight_decay);
  put(out, "torch_adam", optimizer.torch_adam, defaults.torch_adam);
  return out;
}

}  // namespace gradledger
