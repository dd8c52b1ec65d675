#include "sim/frameworks/torch/ddp/user_config.h"

#include <algorithm>

#include "sim/scenario/json_reader.h"
#include "sim/scenario/schema.h"
#include "sim/scenario/spelling.h"

namespace gradledger::torch {
namespace {

using nlohmann::json;

// torch/nn/parallel/distributed.py, __init__, at 2.13.0.
constexpr const char* inert[] = {"module",      "device_ids",      "output_device",  "dim", "broadcast_buffers", "init_sync", "process_group",
                                 "device_mesh", "check_reduction", "kwargs_handlers"};

class DdpUserConfig final : public UserConfigReader {
 public:
  UserConfig read(const json& given, const UserConfigHints& hints) const override {
    UserConfig out;
    if (!given.is_object()) {
      out.errors.push_back({"", "is no object; expected arguments of DistributedDataParallel, an object of keys"});
      return out;
    }
    const std::string schema = "/definitions/ddp_config";
    const json& known = scenario_schema().at(json::json_pointer(schema))["properties"];
    for (const auto& [key, value] : given.items()) {
      const std::string pointer = "/" + pointer_token(key);
      if (std::find(std::begin(inert), std::end(inert), key) != std::end(inert)) out.ignored.push_back(pointer);
      else if (key == "mixed_precision" && !value.is_null()) out.not_modelled.push_back(pointer + ": DistributedDataParallel's own mixed precision");
      else if (!known.contains(key)) {
        std::vector<std::string> names;
        for (const auto& [name, part] : known.items()) names.push_back(name);
        out.unknown.push_back(pointer + suggestion(key, names));
      } else if (auto problem = check_against_part(schema + "/properties/" + key, value, pointer)) out.errors.push_back(std::move(*problem));
      else out.config[key] = value;
    }
    take_arguments(hints.arguments, out);
    return out;
  }

  // The loop says where a window ends.
  void count_windows(json&, std::uint32_t) const override {}
  std::uint32_t counted_window(const json&) const override { return 1; }

  std::vector<ConfigChange> changes(const json& config) const override {
    std::vector<ConfigChange> out;
    for (const char* key : {"static_graph", "gradient_as_bucket_view", "delay_all_reduce", "comm_hook"}) {
      if (!config.contains(key)) continue;
      json without = config;
      without.erase(key);
      out.push_back({std::string("leave out ") + key, std::string("no ") + key, without});
    }
    if (!config.value("find_unused_parameters", false)) {
      json searching = config;
      searching["find_unused_parameters"] = true;
      out.push_back({"set find_unused_parameters to true", "find_unused_parameters", searching});
    }
    return out;
  }

 private:
  // Weights stay fp32 under autocast; a Trainer with fp16 scales its loss by a GradScaler.
  static void take_arguments(const TrainingArguments& arguments, UserConfig& out) {
    out.model_dtype = "fp32";
    const auto take = [&](const char* key, const auto& value) {
      if (!value || out.config.contains(key)) return;
      out.config[key] = *value;
      out.filled.push_back({std::string("/") + key, json(*value).dump(), std::string("the Trainer's ddp_") + key});
    };
    take("find_unused_parameters", arguments.ddp_find_unused_parameters);
    take("static_graph", arguments.ddp_static_graph);
    if (!out.config.contains("bucket_cap_mb_list")) take("bucket_cap_mb", arguments.ddp_bucket_cap_mb);
    if (!arguments.fp16.value_or(false) || out.config.contains("grad_scaler")) return;
    out.config["grad_scaler"] = {{"init_scale", 65536}};
    out.filled.push_back({"/grad_scaler", "{\"init_scale\": 65536}", "the Trainer's fp16: autocast with a GradScaler"});
  }
};

}  // namespace

const UserConfigReader& ddp_user_config_reader() {
  static const DdpUserConfig it;
  return it;
}

}  // namespace gradledger::torch
