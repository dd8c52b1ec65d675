#include "audit/people_files.h"

#include <algorithm>
#include <array>
#include <functional>
#include <map>

#include "audit/arguments_file.h"
#include "audit/fsdp_files.h"
#include "audit/megatron_fsdp_files.h"
#include "audit/trainer_keys.h"
#include "audit/yaml_file.h"
#include "sim/base/files.h"
#include "sim/scenario/json_reader.h"
#include "sim/scenario/spelling.h"

namespace gradledger::audit {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

// Standard input has no ending: an object of JSON, or a comment before one, begins otherwise than YAML does, and so do arguments.
bool is_yaml(const fs::path& path) {
  if (!is_standard_input(path)) return path.extension() == ".yaml" || path.extension() == ".yml";
  const auto text = read_file(path);
  const std::size_t first = text ? text->find_first_not_of("\xEF\xBB\xBF \t\r\n") : std::string::npos;
  return first != std::string::npos && (*text)[first] != '{' && (*text)[first] != '/' && !has_arguments(*text);
}

// Megatron-LM's arguments: by ending or, on standard input, by how they begin.
bool is_arguments(const fs::path& path) {
  if (!is_standard_input(path)) return path.extension() == ".sh" || path.extension() == ".bash" || path.extension() == ".args" || path.extension() == ".txt";
  const auto text = read_file(path);
  return text && has_arguments(*text);
}

// Takes one value of a document; what is wrong goes to the errors.
class Taking {
 public:
  Taking(const Document& file, const json& object, std::string below, Given& out) : file_(file), object_(object), below_(std::move(below)), out_(out) {}

  const json* find(const char* key) {
    taken_.emplace_back(key);
    const auto found = object_.find(key);
    return found == object_.end() || found->is_null() || *found == "none" ? nullptr : &*found;
  }
  void wrong(const char* key, const std::string& expected) { out_.errors.push_back({file_.where(below_ + "/" + key), "is " + object_[key].dump() + "; expected " + expected}); }

  template <class T>
  void flag(const char* key, T& into) {
    const json* value = find(key);
    if (!value) return;
    if (value->is_boolean()) into = value->get<bool>();
    else wrong(key, "true or false");
  }
  template <class T>
  void number(const char* key, T& into) {
    const json* value = find(key);
    if (!value) return;
    if (value->is_number() && value->get<double>() >= 0) into = value->get<double>();
    else wrong(key, "a number, at least 0");
  }
  void count(const char* key, std::optional<std::uint32_t>& into) {
    const json* value = find(key);
    if (!value || *value == "auto") return;
    if (value->is_number_integer() && *value >= 1 && *value <= 65536) into = value->get<std::uint32_t>();
    else wrong(key, "a whole number from 1 to 65536");
  }
  void text(const char* key, std::optional<std::string>& into) {
    const json* value = find(key);
    if (!value) return;
    if (value->is_string()) into = value->get<std::string>();
    else wrong(key, "text");
  }

  // Keys that nothing above asked for.
  template <class Inert>
  void rest(const Inert& inert) {
    for (const auto& [key, value] : object_.items()) {
      if (std::find(taken_.begin(), taken_.end(), key) != taken_.end()) continue;
      const bool known = std::find(inert.begin(), inert.end(), key) != inert.end();
      (known ? out_.ignored : out_.unknown).push_back(below_ + "/" + pointer_token(key) + (known ? "" : suggestion(key, taken_)));
    }
  }

 private:
  const Document& file_;
  const json& object_;
  std::string below_;
  Given& out_;
  std::vector<std::string> taken_;
};

// A file that another one names: from where the command runs, as its reader would, else beside the file that names it.
void read_named(const std::string& name, const fs::path& folder, Given& out) {
  const fs::path path = fs::exists(name) || fs::path(name).is_absolute() ? fs::path(name) : folder / name;
  auto document = read_document(path);
  if (document) out.config = std::move(document).value();
  else out.errors.push_back(document.error());
}

constexpr std::array accelerate_inert{"compute_environment",
                                      "debug",
                                      "downcast_bf16",
                                      "enable_cpu_affinity",
                                      "machine_rank",
                                      "main_training_function",
                                      "rdzv_backend",
                                      "same_network",
                                      "tpu_env",
                                      "tpu_use_cluster",
                                      "tpu_use_sudo",
                                      "use_cpu",
                                      "main_process_ip",
                                      "main_process_port",
                                      "gpu_ids",
                                      "dynamo_config",
                                      "megatron_lm_config",
                                      "command_file",
                                      "commands",
                                      "deepspeed_hostfile"};
constexpr std::array plugin_inert{"zero3_init_flag",
                                  "zero3_save_16bit_model",
                                  "deepspeed_multinode_launcher",
                                  "deepspeed_hostfile",
                                  "deepspeed_exclusion_filter",
                                  "deepspeed_inclusion_filter",
                                  "deepspeed_moe_layer_cls_names",
                                  "offload_optimizer_nvme_path",
                                  "offload_param_nvme_path"};

// What DeepSpeedPlugin makes of its own arguments.
void take_plugin(const Document& file, const json& plugin, const fs::path& folder, Given& out) {
  Taking take(file, plugin, "/deepspeed_config", out);
  std::optional<std::string> named, optimizer, parameters;
  std::optional<std::uint32_t> stage, steps;
  std::optional<double> clipping;
  take.text("deepspeed_config_file", named);
  take.text("offload_optimizer_device", optimizer);
  take.text("offload_param_device", parameters);
  take.number("gradient_clipping", clipping);
  take.count("gradient_accumulation_steps", steps);
  if (const json* value = take.find("zero_stage")) {
    if (value->is_number_integer() && *value >= 0 && *value <= 3) stage = value->get<std::uint32_t>();
    else take.wrong("zero_stage", "a stage from 0 to 3");
  }
  take.rest(plugin_inert);
  if (named) return read_named(*named, folder, out);
  json config{{"train_batch_size", "auto"}, {"train_micro_batch_size_per_gpu", "auto"}, {"gradient_accumulation_steps", "auto"}};
  json& zero = config["zero_optimization"] = {{"stage", stage.value_or(2)}};
  if (optimizer) zero["offload_optimizer"] = {{"device", *optimizer}};
  if (parameters) zero["offload_param"] = {{"device", *parameters}};
  if (clipping) config["gradient_clipping"] = *clipping;
  if (steps) config["gradient_accumulation_steps"] = *steps;
  out.config = Document{file.file, std::move(config), {}};
}

// trl/trainer/grpo_config.py, at 1.16.0.
void take_grpo(Taking& take, Given& out) {
  take.text("loss_type", out.grpo_loss);
  take.count("steps_per_generation", out.steps_per_generation);
  take.count("num_iterations", out.num_iterations);
  take.count("generation_batch_size", out.generation_batch_size);
}

// transformers/trainer.py, create_accelerator_and_postprocess: gradient_accumulation_kwargs go to GradientAccumulationPlugin.
void take_accelerator_config(Taking& take, TrainingArguments& out) {
  const json* config = take.find("accelerator_config");
  const json::json_pointer each("/gradient_accumulation_kwargs/sync_each_batch");
  if (!config || !config->is_object() || !config->contains(each)) return;
  if (config->at(each).is_boolean()) out.sync_each_batch = config->at(each).get<bool>();
  else take.wrong("accelerator_config", "true or false for sync_each_batch");
}

}  // namespace

void take_accelerate(const Document& file, const fs::path& folder, const loops::Releases& releases, Given& out) {
  if (!file.json.is_object()) {
    out.errors.push_back({file.where(""), "is no mapping; expected the file that accelerate config writes"});
    return;
  }
  Taking take(file, file.json, "", out);
  std::optional<std::string> kind, precision;
  take.text("distributed_type", kind);
  take.text("mixed_precision", precision);
  take.count("num_processes", out.ranks);
  take.count("num_machines", out.machines);
  const json* plugin = take.find("deepspeed_config");
  const json* fsdp = take.find("fsdp_config");
  const json* parallelism = take.find("parallelism_config");
  take.rest(accelerate_inert);
  const json sizes = parallelism && parallelism->is_object() ? *parallelism : json::object();
  for (const auto& [key, value] : sizes.items())
    if (value.is_number() && value > 1 && key.find("dp_shard") == key.npos)
      out.not_modelled.push_back("/parallelism_config/" + pointer_token(key) + ": ranks that are not all alike");
  if (precision == "bf16") out.arguments.bf16 = true;
  if (precision == "fp16") out.arguments.fp16 = true;
  if (precision == "fp8") out.not_modelled.push_back("/mixed_precision: fp8");
  const std::string type = kind.value_or(plugin ? "DEEPSPEED" : "MULTI_GPU");
  if (type == "DEEPSPEED") {
    out.framework = "deepspeed";
    if (plugin && plugin->is_object()) take_plugin(file, *plugin, folder, out);
    else out.errors.push_back({file.where("/distributed_type"), "is DEEPSPEED, but there is no deepspeed_config; expected its section"});
    if (out.config && out.config->json.is_object() && precision && *precision != "no" && !out.config->json.contains(*precision)) out.config->json[*precision] = {{"enabled", true}};
    return;
  }
  if (fsdp && type != "FSDP") out.ignored.emplace_back("/fsdp_config");
  if (type == "FSDP") return take_launched_fsdp(file, fsdp ? *fsdp : json::object(), releases, out);
  if (type == "MULTI_GPU" || type == "MULTI_CPU") {
    out.framework = "ddp";
    out.config = Document{file.file, json::object(), {}};
    return;
  }
  out.errors.push_back({file.where("/distributed_type"), "is " + type + ", of which there is no model here; expected DEEPSPEED, FSDP or MULTI_GPU"});
}

void take_trainer(const Document& file, const fs::path& folder, const loops::Releases& releases, Given& out) {
  if (!file.json.is_object()) {
    out.errors.push_back({file.where(""), "is no object; expected arguments of transformers.TrainingArguments"});
    return;
  }
  Taking take(file, file.json, "", out);
  TrainingArguments& a = out.arguments;
  take.count("gradient_accumulation_steps", a.gradient_accumulation_steps);
  take.count("per_device_train_batch_size", a.per_device_train_batch_size);
  take.number("max_grad_norm", a.max_grad_norm);
  take.number("learning_rate", a.learning_rate);
  take.number("adam_beta1", a.adam_beta1);
  take.number("adam_beta2", a.adam_beta2);
  take.number("adam_epsilon", a.adam_epsilon);
  take.number("weight_decay", a.weight_decay);
  take.flag("bf16", a.bf16);
  take.flag("fp16", a.fp16);
  take.text("optim", a.optim);
  take.flag("ddp_find_unused_parameters", a.ddp_find_unused_parameters);
  take.flag("ddp_static_graph", a.ddp_static_graph);
  take.number("ddp_bucket_cap_mb", a.ddp_bucket_cap_mb);
  take_grpo(take, out);
  take_accelerator_config(take, a);
  take.flag("average_tokens_across_devices", out.average_tokens);
  const json* deepspeed = take.find("deepspeed");
  const json* fsdp = take.find("fsdp");
  const json* options = take.find("fsdp_config");
  take.rest(trainer_inert);
  const bool sharded = fsdp && !fsdp->empty() && *fsdp != "" && *fsdp != false;
  if (options && !sharded) out.ignored.emplace_back("/fsdp_config");
  if (out.config || !out.framework.empty()) return;
  if (sharded && options && options->is_string()) {
    read_named(options->get<std::string>(), folder, out);
    if (!out.config) return;
    const Document named = std::move(*out.config);
    out.config.reset();
    return take_trained_fsdp(file, *fsdp, named, "", named.json, releases, out);
  }
  if (sharded) return take_trained_fsdp(file, *fsdp, file, "/fsdp_config", options ? *options : json::object(), releases, out);
  if (!deepspeed) {
    out.framework = "ddp";
    out.config = Document{file.file, json::object(), {}};
    return;
  }
  out.framework = "deepspeed";
  if (deepspeed->is_string()) return read_named(deepspeed->get<std::string>(), folder, out);
  out.config = Document{file.file, *deepspeed, {}};
  for (const auto& [pointer, place] : file.places)
    if (pointer.starts_with("/deepspeed")) out.config->places[pointer.substr(std::string("/deepspeed").size())] = place;
}

Given read_files(const Paths& paths, const loops::Releases& releases) {
  Given out;
  out.framework = paths.framework;
  if (is_yaml(paths.config)) {
    const auto file = read_yaml(paths.config);
    if (file) take_accelerate(*file, fs::path(paths.config).parent_path(), releases, out);
    else out.errors.push_back(file.error());
  } else if (!paths.config.empty() && is_arguments(paths.config)) {
    auto file = read_arguments(paths.config);
    if (file) out.config = std::move(file).value();
    else out.errors.push_back(file.error());
    if (out.framework.empty()) out.framework = "megatron";
  } else if (!paths.config.empty()) {
    auto file = read_document(paths.config);
    if (file) out.config = std::move(file).value();
    else out.errors.push_back(file.error());
    if (out.framework.empty()) out.framework = "deepspeed";
  }
  if (out.framework == "megatron" && out.config && asks_for_megatron_fsdp(out.config->json)) {
    out.of_megatron_lm = true;
    take_megatron_fsdp(releases, out);
    out.framework = out.config->json.value("megatron_fsdp_version", json(1)) == 2 ? "megatron-fsdp-v2" : "megatron-fsdp";
  }
  if ((out.framework == "megatron" || out.of_megatron_lm) && out.config) out.ranks = ranks_of(out.config->json);
  if (!paths.arguments.empty()) {
    const auto file = read_document(paths.arguments);
    if (file) take_trainer(*file, fs::path(paths.arguments).parent_path(), releases, out);
    else out.errors.push_back(file.error());
  }
  return out;
}

}  // namespace gradledger::audit
