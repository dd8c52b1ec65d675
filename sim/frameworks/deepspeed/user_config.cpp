#include "sim/frameworks/deepspeed/user_config.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "sim/base/limits.h"
#include "sim/frameworks/deepspeed/user_autotp.h"
#include "sim/frameworks/deepspeed/user_config_keys.h"
#include "sim/scenario/json_reader.h"
#include "sim/scenario/schema.h"
#include "sim/scenario/spelling.h"

namespace gradledger::deepspeed {
namespace {

using nlohmann::json;

const std::string schema_root = "/definitions/deepspeed_config";

// What transformers and accelerate put in place of "auto", with what their arguments are where nobody says: transformers/integrations/deepspeed.py,
// trainer_config_process and trainer_config_finalize, at 4.54.1.
class Auto {
 public:
  explicit Auto(const UserConfigHints& hints) {
    const TrainingArguments& a = hints.arguments;
    put("/gradient_clipping", a.max_grad_norm, 1.0, "max_grad_norm");
    put("/optimizer/params/lr", a.learning_rate, 5e-5, "learning_rate");  // no tolerance: a default
    put("/optimizer/params/eps", a.adam_epsilon, 1e-8, "adam_epsilon");   // no tolerance: a default
    put("/optimizer/params/weight_decay", a.weight_decay, 0.0, "weight_decay");
    put("/fp16/enabled", a.fp16, false, "fp16");
    put("/bf16/enabled", a.bf16, false, "bf16");
    put("/optimizer/params/betas", a.adam_beta1 ? std::optional(json::array({*a.adam_beta1, a.adam_beta2.value_or(0.999)})) : std::nullopt, json::array({0.9, 0.999}),
        "adam_beta1, adam_beta2");
    if (hints.hidden_size)
      values_["/zero_optimization/reduce_bucket_size"] = {*hints.hidden_size * *hints.hidden_size, "the square of the model's hidden size, as transformers fills it in"};
    else values_["/zero_optimization/reduce_bucket_size"] = {500'000'000, "DeepSpeed's default, as the model's hidden size is not known"};
    values_["/zero_optimization/sub_group_size"] = {1'000'000'000, "DeepSpeed's default"};
  }

  const std::pair<json, std::string>* at(const std::string& pointer) const {
    const auto found = values_.find(pointer);
    return found == values_.end() ? nullptr : &found->second;
  }

 private:
  template <class T>
  void put(const std::string& pointer, const std::optional<T>& given, const T& otherwise, const std::string& argument) {
    if (given) values_[pointer] = {json(*given), "the Trainer's " + argument};
    else values_[pointer] = {json(otherwise), "default of the Trainer's " + argument};
  }

  std::map<std::string, std::pair<json, std::string>> values_;
};

class Reading {
 public:
  explicit Reading(const UserConfigHints& hints) : hints_(hints), auto_(hints) {}

  UserConfig read(json given) {
    if (!given.is_object()) {
      out_.errors.push_back({"", "is no object; expected a DeepSpeed configuration, an object of keys"});
      return std::move(out_);
    }
    rewrite_old_spellings(given);
    if (given.contains("optimizer")) optimizer(given["optimizer"]);
    given.erase("optimizer");
    cut_by_autotp(given, hints_, out_);
    batch(given);
    out_.config = object(given, "", schema_root);
    if (out_.config.contains("bf16") && out_.config.contains("fp16") && out_.config["bf16"].value("enabled", false) && out_.config["fp16"].value("enabled", false))
      out_.errors.push_back({"/fp16/enabled", "is true, and so is bf16.enabled; expected one of the two"});
    devices();
    shrink();
    return std::move(out_);
  }

 private:
  // ---- keys that DeepSpeed knows by another name
  void rewrite_old_spellings(json& given) {
    if (given.contains("bfloat16") && !given.contains("bf16")) {
      given["bf16"] = given["bfloat16"];
      given.erase("bfloat16");
    }
    if (!given.contains("zero_optimization") || !given["zero_optimization"].is_object()) return;
    json& zero = given["zero_optimization"];
    const std::pair<const char*, const char*> old[] = {{"cpu_offload", "offload_optimizer"}, {"cpu_offload_params", "offload_param"}};
    for (const auto& [name, now] : old) {
      if (!zero.contains(name)) continue;
      if (zero[name] == true && !zero.contains(now)) {
        zero[now] = {{"device", "cpu"}};
        out_.notes.push_back(std::string("zero_optimization.") + name + " is an old name of " + now + ": {\"device\": \"cpu\"}, and is taken as that.");
      }
      zero.erase(name);
    }
    zero.erase("cpu_offload_use_pin_memory");
    for (const char* offload : {"offload_optimizer", "offload_param"})
      if (zero.contains(offload) && zero[offload].is_null()) zero.erase(offload);
  }

  // ---- values
  json object(const json& given, const std::string& where, const std::string& schema) {
    json out = json::object();
    const json& known = scenario_schema().at(json::json_pointer(schema))["properties"];
    for (const auto& [key, value] : given.items()) {
      const std::string pointer = where + "/" + pointer_token(key);
      if (const auto why = deepspeed::not_modelled(pointer, value)) out_.not_modelled.push_back(*why);
      else if (touches_no_gradient(pointer)) out_.ignored.push_back(pointer);
      else if (is_known_switch(pointer) && !known.contains(key)) out_.ignored.push_back(pointer);
      else if (!known.contains(key)) unknown(where, key, pointer, known);
      else if (known[key].contains("properties")) nested(out, key, value, pointer, schema + "/properties/" + key);
      else if (auto taken = single(value, pointer, schema + "/properties/" + key)) out[key] = std::move(*taken);
    }
    return out;
  }

  void nested(json& out, const std::string& key, const json& value, const std::string& pointer, const std::string& schema) {
    if (!value.is_object()) out_.errors.push_back({pointer, "is " + value.dump() + "; expected an object"});
    else out[key] = object(value, pointer, schema);
  }

  std::optional<json> single(const json& given, const std::string& pointer, const std::string& schema) {
    json value = given;
    if (value == "auto") {
      const auto* filled = auto_.at(pointer);
      if (!filled) {
        out_.errors.push_back({pointer, "is \"auto\", which neither transformers nor accelerate fills in here; expected a value"});
        return std::nullopt;
      }
      out_.filled.push_back({pointer, filled->first.dump(), filled->second});
      value = filled->first;
    }
    if (auto problem = check_against_part(schema, value, pointer)) {
      out_.errors.push_back(std::move(*problem));
      return std::nullopt;
    }
    return value;
  }

  void unknown(const std::string& where, const std::string& key, const std::string& pointer, const json& known) {
    std::vector<std::string> names = other_keys(where);
    for (const auto& [name, part] : known.items()) names.push_back(name);
    if (where.empty()) names.push_back("optimizer");
    out_.unknown.push_back(pointer + suggestion(key, names));
  }

  // ---- the optimizer: any that steps on gradients gets the same ones
  void optimizer(const json& given) {
    if (!given.is_object() || !given.contains("type") || !given["type"].is_string()) {
      out_.errors.push_back({"/optimizer", "names no type; expected {\"type\": \"AdamW\", \"params\": {...}}"});
      return;
    }
    out_.optimizer_name = given["type"].get<std::string>();
    std::string type = out_.optimizer_name;
    std::transform(type.begin(), type.end(), type.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    out_.optimizer = json::object();
    out_.optimizer["type"] = type == "sgd" ? "SGD" : type == "adam" ? "Adam" : "AdamW";
    if (type.find("onebit") != type.npos || type.find("zeroone") != type.npos)
      out_.not_modelled.push_back("/optimizer/type: " + out_.optimizer_name + ", which sends gradients itself and compresses them");
    const json params = given.value("params", json::object());
    if (!params.is_object()) {
      out_.errors.push_back({"/optimizer/params", "is " + params.dump() + "; expected an object"});
      return;
    }
    for (const char* key : {"lr", "betas", "eps", "weight_decay", "torch_adam"})
      if (params.contains(key) && !(type == "sgd" && std::string(key) == "torch_adam"))
        if (auto taken = single(params[key], std::string("/optimizer/params/") + key, std::string("/properties/engine/properties/optimizer/properties/") + key))
          out_.optimizer[key] = std::move(*taken);
    for (const auto& [key, value] : params.items())
      if (!out_.optimizer.contains(key)) out_.ignored.push_back("/optimizer/params/" + pointer_token(key));
  }

  // ---- the batch triple: runtime/config.py, _set_batch_related_parameters and _batch_assertion, at 0.19.8
  std::optional<std::uint64_t> size(json& given, const char* key) {
    if (!given.contains(key) || given[key] == "auto") return std::nullopt;
    if (auto problem = check_against_part(schema_root + "/properties/" + key, given[key], std::string("/") + key)) {
      out_.errors.push_back(std::move(*problem));
      given.erase(key);
      batch_is_wrong_ = true;
      return std::nullopt;
    }
    return given[key].get<std::uint64_t>();
  }

  void fill(json& given, const char* key, std::uint64_t value, const std::string& why) {
    given[key] = value;
    out_.filled.push_back({std::string("/") + key, std::to_string(value), why});
  }

  void batch(json& given) {
    auto train = size(given, "train_batch_size"), micro = size(given, "train_micro_batch_size_per_gpu"), steps = size(given, "gradient_accumulation_steps");
    if (batch_is_wrong_) return;
    const std::uint64_t ranks = hints_.ranks;  // AutoTP's too
    const bool left_to_a_trainer = std::any_of(given.begin(), given.end(), [](const json& value) { return value == "auto"; });
    for (const char* key : {"train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"})
      if (given.contains(key) && given[key] == "auto") given.erase(key);
    if (!steps && !(train && micro) && hints_.accumulation_steps) {
      steps = *hints_.accumulation_steps;
      fill(given, "gradient_accumulation_steps", *steps, hints_.accumulation_why);
    }
    if (!train && !micro) {
      const auto said = hints_.arguments.per_device_train_batch_size;
      if (!left_to_a_trainer && !said)
        out_.notes.push_back("Without a trainer that fills it in DeepSpeed refuses this file: Either train_batch_size or train_micro_batch_size_per_gpu needs to be provided.");
      micro = said.value_or(1);
      fill(given, "train_micro_batch_size_per_gpu", *micro, said ? "the Trainer's per_device_train_batch_size" : "nobody says it; no weight depends on it");
    }
    if (!train) return;
    if (micro && !steps && *train / *micro / ranks > 0) steps = *train / *micro / ranks;
    else if (!steps) steps = 1;
    if (!micro) micro = *train / ranks / *steps;
    if (*train != *micro * *steps * ranks)
      out_.errors.push_back({"/train_batch_size",
                             "DeepSpeed refuses it: Check batch related parameters. train_batch_size is not equal to micro_batch_per_gpu * gradient_acc_step * "
                             "world_size " +
                                 std::to_string(*train) + " != " + std::to_string(*micro) + " * " + std::to_string(*steps) + " * " + std::to_string(ranks)});
    if (*steps <= limits::gradient_accumulation_steps_max) given["gradient_accumulation_steps"] = *steps;
  }

  // ---- what a scenario has in another way
  void devices() {
    if (!out_.config.contains("zero_optimization")) return;
    json& zero = out_.config["zero_optimization"];
    for (const char* key : {"offload_optimizer", "offload_param"})
      if (zero.contains(key) && !zero[key].contains("device")) zero[key]["device"] = "none";
    // Without effect below stage 3, and refused at stage 0.
    if (zero.value("stage", 0) == 0) zero.erase("offload_optimizer");
    if (zero.value("stage", 0) != 3) zero.erase("offload_param");
  }

  void shrink() {
    if (!out_.config.contains("zero_optimization") || hints_.shrink == 1) {
      if (hints_.shrink != 1) out_.config["zero_optimization"] = json::object();
      else return;
    }
    json& zero = out_.config["zero_optimization"];
    const auto divided = [&](const char* key, double otherwise) {
      const double value = zero.contains(key) && zero[key].is_number() ? zero[key].get<double>() : otherwise;
      zero[key] = std::max(1.0, std::floor(value / static_cast<double>(hints_.shrink)));
    };
    divided("reduce_bucket_size", 500'000'000);
    divided("sub_group_size", 1'000'000'000);
  }

  const UserConfigHints& hints_;
  const Auto auto_;
  UserConfig out_;
  bool batch_is_wrong_ = false;
};

json with(json config, const std::string& pointer, json value) {
  config[json::json_pointer(pointer)] = std::move(value);
  return config;
}

// Offload of the optimizer is refused at stage 0.
json at_stage(json config, std::uint32_t stage) {
  json& zero = config["zero_optimization"];
  zero["stage"] = stage;
  if (stage == 0) zero.erase("offload_optimizer");
  if (stage != 3) zero.erase("offload_param");
  return config;
}

json on_the_device(json config) {
  config["zero_optimization"].erase("offload_optimizer");
  return config;
}

std::uint32_t stage_of(const json& config) { return config.value("zero_optimization", json::object()).value("stage", 0u); }

bool offloads(const json& config) { return config.value(json::json_pointer("/zero_optimization/offload_optimizer/device"), "none") == std::string("cpu"); }

class DeepSpeedUserConfig final : public UserConfigReader {
 public:
  UserConfig read(const json& given, const UserConfigHints& hints) const override { return Reading(hints).read(given); }

  void count_windows(json& config, std::uint32_t micro_batches) const override {
    config["gradient_accumulation_steps"] = micro_batches;
    config.erase("train_batch_size");
  }
  std::uint32_t counted_window(const json& config) const override { return config.value("gradient_accumulation_steps", 1u); }

  std::vector<ConfigChange> changes(const json& config) const override {
    std::vector<ConfigChange> out;
    const std::uint32_t stage = stage_of(config);
    if (offloads(config)) out.push_back({"keep the optimizer on the device: leave out zero_optimization.offload_optimizer", "no offload", on_the_device(config)});
    for (const std::uint32_t other : {1u, 2u, 3u, 0u}) {
      if (other == stage) continue;
      const bool keeps = offloads(config) && other != 0;
      out.push_back({"use ZeRO stage " + std::to_string(other) +
                         (keeps              ? ", with offload as it is"
                          : offloads(config) ? ", which has no offload"
                                             : ""),
                     "stage " + std::to_string(other), at_stage(config, other)});
    }
    const json zero = config.value("zero_optimization", json::object());
    if (zero.contains("overlap_comm") ? zero["overlap_comm"] == true : stage == 3)
      out.push_back({"set zero_optimization.overlap_comm to false", "overlap_comm false", with(config, "/zero_optimization/overlap_comm", false)});
    if (config.contains("data_types") && config["data_types"].contains("grad_accum_dtype")) {
      json without = config;
      without.erase("data_types");
      out.push_back({"leave out data_types.grad_accum_dtype", "no grad_accum_dtype", without});
    }
    if (config.value(json::json_pointer("/bf16/enabled"), false) && !config["bf16"].contains("immediate_grad_update"))
      out.push_back({"set bf16.immediate_grad_update to true", "immediate_grad_update", with(config, "/bf16/immediate_grad_update", true)});
    return out;
  }

  std::vector<ConfigChange> stages(const json& config) const override {
    std::vector<ConfigChange> out;
    for (const std::uint32_t stage : {0u, 1u, 2u, 3u}) {
      const std::string name = "stage " + std::to_string(stage);
      const json plain = on_the_device(at_stage(config, stage));
      out.push_back({name, name, plain});
      if (stage > 0) out.push_back({name + " with CPU offload", name + " offload", with(plain, "/zero_optimization/offload_optimizer/device", "cpu")});
    }
    return out;
  }
};

}  // namespace

const UserConfigReader& user_config_reader() {
  static const DeepSpeedUserConfig it;
  return it;
}

}  // namespace gradledger::deepspeed
