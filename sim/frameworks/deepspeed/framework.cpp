#include "sim/frameworks/deepspeed/framework.h"

#include <algorithm>
#include <string>

#include <nlohmann/json.hpp>

#include "sim/frameworks/deepspeed/behaviour.h"
#include "sim/frameworks/deepspeed/buffers.h"
#include "sim/frameworks/deepspeed/catalogue.h"
#include "sim/frameworks/deepspeed/config_json.h"
#include "sim/frameworks/deepspeed/contract.h"
#include "sim/frameworks/deepspeed/documented_use.h"
#include "sim/frameworks/deepspeed/engine/muon.h"
#include "sim/frameworks/deepspeed/engines.h"
#include "sim/frameworks/deepspeed/framework_history.h"
#include "sim/frameworks/deepspeed/search/search_space.h"
#include "sim/frameworks/deepspeed/settings.h"
#include "sim/frameworks/deepspeed/user_config.h"
#include "sim/frameworks/loop_admission.h"
#include "sim/scenario/layout.h"
#include "sim/scenario/script_pointer.h"

namespace gradledger::deepspeed {
namespace {

using nlohmann::json;

// What loops around PyTorch's own wrappers do, and DeepSpeed's engine does not model.
std::optional<InputError> not_of_deepspeed(const std::vector<ScriptItem>& items, const std::string& where) {
  for (std::size_t i = 0; i < items.size(); ++i) {
    const std::string here = where + "/" + std::to_string(i);
    const char* what = items[i].kind == ScriptKind::unscale ? "unscale"
                       : items[i].sum_of != 1               ? "sum_of"
                       : items[i].raises_after              ? "raises_after"
                       : items[i].past_scaler               ? "past_scaler"
                       : !items[i].set_to_none              ? "set_to_none"
                                                            : nullptr;
    if (what) return InputError{here, "has " + std::string(what) + ", which is not modelled with DeepSpeed; expected a scenario of PyTorch's wrappers"};
    if (auto error = not_of_deepspeed(items[i].items, pointer_of_items(items[i], here))) return error;
  }
  return std::nullopt;
}

// What has not been run on a model that tensor-parallel ranks have cut.
std::optional<InputError> in_script_of_cut_model(const std::vector<ScriptItem>& items, const std::string& where) {
  for (std::size_t i = 0; i < items.size(); ++i) {
    const std::string here = where + "/" + std::to_string(i);
    const ScriptKind kind = items[i].kind;
    if (kind == ScriptKind::set_gradient || kind == ScriptKind::save || kind == ScriptKind::restore)
      return InputError{here, "is not modelled with tensor-parallel ranks of DeepSpeed; expected none of set_gradient, save and restore"};
    if (auto error = in_script_of_cut_model(items[i].items, pointer_of_items(items[i], here))) return error;
  }
  return std::nullopt;
}

std::optional<InputError> cut_model_problem(const Scenario& s) {
  const std::string with = "is not modelled with tensor-parallel ranks of DeepSpeed";
  if (s.engine.pipeline_stages > 1) return InputError{"/engine/pipeline_stages", with + "; expected 1"};
  if (s.engine.expert_parallel_size > 1) return InputError{"/engine/expert_parallel_size", with + "; expected 1"};
  if (s.engine.sequence_parallel_size > 1) return InputError{"/engine/sequence_parallel_size", with + "; expected 1"};
  if (uses_muon(s)) return InputError{"/engine/optimizer/type", with + "; expected SGD or Adam"};
  if (named_groups(s).of(averaging_group(s), 0).size() == 1)
    return InputError{"/layout", "leaves each data-parallel rank alone; expected two or more of them with tensor-parallel ranks of DeepSpeed"};
  for (std::uint32_t p = 0; p < s.parameters.size(); ++p)
    if (s.parameters[p].expert || s.parameters[p].tied_to) return InputError{parameter_pointer(s, p) + (s.parameters[p].expert ? "/expert" : "/tied_to"), with};
  return in_script_of_cut_model(s.script, "/script");
}

// What AutoTP cuts is what a scenario's layout and its parameters say: they have to say as much as the configuration does.
std::optional<InputError> autotp_problem(const Scenario& s) {
  const std::uint32_t asked = deepspeed_config(s).autotp_size, laid = tensor_parallel_ranks(s);
  if (asked <= 1) return std::nullopt;
  const std::string where = "/engine/config/tensor_parallel/autotp_size";
  if (asked != laid)
    return InputError{where, "is " + std::to_string(asked) + ", and tp of /layout is " + std::to_string(laid) + R"(; expected "layout": {"tp": )" + std::to_string(asked) + "}"};
  for (std::uint32_t p = 0; p < s.parameters.size(); ++p)
    if (!s.parameters[p].summed_over.empty())
      return InputError{parameter_pointer(s, p) + "/summed_over",
                        "is not modelled with AutoTP, which sums some such gradients itself; expected a model that is cut by its own code"};
  return std::nullopt;
}

std::optional<InputError> not_modelled(const Scenario& scenario) {
  if (auto error = not_of_deepspeed(scenario.script, "/script")) return error;
  for (std::size_t p = 0; p < scenario.parameters.size(); ++p)
    if (scenario.parameters[p].dtype) return InputError{"/parameters/" + std::to_string(p) + "/dtype", "is not modelled with DeepSpeed, whose parameters have one dtype"};
  if (auto error = neighbours_problem(scenario, "DeepSpeed")) return error;
  if (auto error = layout_problem_of(scenario, "DeepSpeed")) return error;
  if (auto error = autotp_problem(scenario)) return error;
  return tensor_parallel_ranks(scenario) > 1 ? cut_model_problem(scenario) : std::nullopt;
}

class DeepSpeed final : public Framework {
 public:
  std::string_view id() const override { return "deepspeed"; }
  std::string_view title() const override { return "DeepSpeed"; }
  bool lays_out_ranks() const override { return true; }

  Result<FrameworkConfig> config_from_json(const json& config, std::uint32_t data_parallel_ranks, const std::string& where) const override {
    auto read = parse_deepspeed_config(config, data_parallel_ranks, where);
    if (!read) return read.error();
    return FrameworkConfig(std::move(read).value());
  }

  // The enabled sections say it too.
  Result<Dtype> model_dtype(FrameworkConfig& of, const json& given, std::optional<Dtype> stated) const override {
    auto& config = of.as<DeepSpeedConfig>();
    const Dtype configured = config.bf16.enabled ? Dtype::bfloat16 : config.fp16.enabled ? Dtype::float16 : Dtype::float32;
    if (!stated) return configured;
    const auto unsaid = [&](const char* section) { return !given.contains(section) || !given[section].contains("enabled"); };
    if (configured == Dtype::float32 && *stated == Dtype::bfloat16 && unsaid("bf16")) config.bf16.enabled = true;
    else if (configured == Dtype::float32 && *stated == Dtype::float16 && unsaid("fp16")) config.fp16.enabled = true;
    else if (configured != *stated)
      return InputError{"/model_dtype",
                        "is \"" + std::string(name_of(*stated)) + "\", but the bf16 and fp16 sections of /engine/config make it \"" + std::string(name_of(configured)) + "\""};
    return *stated;
  }

  Result<Contract> contract(const Scenario& scenario) const override { return resolve_contract(scenario); }

  std::optional<InputError> as_of_problem(const AsOf& as_of) const override {
    const auto behaviour = resolve_behaviour(as_of);
    return behaviour ? std::nullopt : std::optional(behaviour.error());
  }
  // "0.18.9+cpu" is built of 0.18.9.
  std::optional<AsOf> installed(const std::map<std::string, std::string>& releases) const override {
    const auto found = releases.find("deepspeed");
    if (found == releases.end()) return std::nullopt;
    return AsOf{found->second.substr(0, found->second.find('+')), {}};
  }
  std::optional<std::string> as_of_note(std::string_view as_of) const override { return point_note(as_of); }

  std::span<const EngineInfo> engines() const override { return deepspeed::engines(); }
  Result<const EngineInfo*> select(const Scenario& scenario) const override {
    if (auto error = not_modelled(scenario)) return *error;
    const auto wrapper = select_wrapper(scenario);
    if (!wrapper) return wrapper.error();
    return &info_of(*wrapper);
  }
  EngineFactory factory(const Scenario& scenario) const override { return deepspeed::engine_factory(scenario); }

  std::span<const BufferFamily> buffer_families() const override { return deepspeed::buffer_families(); }
  // Zeros that fill the last shares: of each parameter at stage 3, else of each of the optimizer's groups, experts by themselves, to twice the ranks.
  static std::uint64_t padding(const Scenario& scenario) {
    const std::uint64_t ranks = scenario.world_size, groups = std::max<std::size_t>(1, scenario.engine.param_groups.size());
    const std::uint64_t flat = 2 * groups * (scenario.engine.expert_parallel_size > 1 ? 2 : 1);
    return deepspeed_config(scenario).zero.stage == 3 ? scenario.parameters.size() * ranks : flat * ranks;
  }
  // Weights, gradients, two buckets, a flat copy and its cast, kept gradients, accumulators, fp32 master and its gradient, moments.
  std::uint64_t rank_bytes(const Scenario& scenario) const override {
    const std::uint64_t model = size_of(scenario.model_dtype), acc = size_of(grad_accum_dtype_of(scenario)), wire = size_of(communication_dtype_of(scenario));
    // Muon: the momentum of whole matrices, the one that waits for the step, its share, and what goes in.
    const std::uint64_t moments = scenario.engine.optimizer.type == OptimizerType::sgd ? 0 : scenario.engine.optimizer.adam() ? 8 : 4 * acc;
    // Buckets that are reduced whole are held whole: two, and the cast of one.
    const auto behaviour = resolve_behaviour(scenario.engine.as_of);
    const bool whole = behaviour.ok() && reduces_whole_buckets(deepspeed_config(scenario), *behaviour);
    const std::uint64_t buckets = whole ? deepspeed_config(scenario).zero.reduce_bucket_size * (2 * model + wire) : 0;
    return (scenario.numel() + padding(scenario)) * (5 * model + 2 * acc + wire + 8 + moments + 8) + buckets;
  }
  std::optional<std::uint32_t> stage(const Scenario& scenario) const override { return deepspeed_config(scenario).zero.stage; }
  std::string described(const Scenario& scenario) const override {
    const DeepSpeedConfig& config = deepspeed_config(scenario);
    return "ZeRO stage " + std::to_string(config.zero.stage) + (config.offloads_optimizer() ? " with CPU offload" : "") + ", gradient_accumulation_steps " +
           std::to_string(config.gradient_accumulation_steps);
  }

  std::span<const UseRule> use_rules() const override { return deepspeed::use_rules(); }
  UseReport use_of(const Scenario& scenario, const Timeline& timeline) const override { return deepspeed::use_of(scenario, timeline); }

  std::span<const Entry> catalogue() const override { return deepspeed::catalogue(); }
  const SearchSpace* search_space() const override { return &deepspeed::search_space(); }
  const History* history() const override { return &deepspeed::history(); }
  const UserConfigReader* user_config() const override { return &user_config_reader(); }
};

}  // namespace

const Framework* framework() {
  static const DeepSpeed it;
  return &it;
}

}  // namespace gradledger::deepspeed
