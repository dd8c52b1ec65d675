#include "sim/frameworks/megatron/user_layout.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <map>
#include <numeric>
#include <set>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "sim/frameworks/megatron/parallel_groups.h"
#include "sim/scenario/scenario.h"

namespace gradledger::megatron {
namespace {

using nlohmann::json;

constexpr std::uint64_t ranks_replayed_max = 64;

struct Named {
  std::string name;
  std::uint64_t numel = 0;
};

// The smallest of several, so that stages and micro-batches divide each other as before.
std::uint64_t few(std::uint64_t of) {
  for (std::uint64_t divisor = 2; divisor < of; ++divisor)
    if (of % divisor == 0) return divisor;
  return of;
}

// "layers.12." of "layers.12.mlp.weight"; empty: it is in no layer.
std::string_view layer_of(std::string_view name) {
  const auto digit = std::find_if(name.begin(), name.end(), [](unsigned char c) { return std::isdigit(c); });
  const auto end = std::find_if_not(digit, name.end(), [](unsigned char c) { return std::isdigit(c); });
  return name.substr(0, digit == name.end() ? 0 : static_cast<std::size_t>(end - name.begin()));
}

// The number behind "expert" or "experts."; nothing: it is no expert's.
std::optional<std::uint64_t> expert_of(std::string_view name) {
  const std::size_t at = name.find("expert");
  if (at == name.npos || name.find("shared") < at) return std::nullopt;
  const std::size_t digits = name.find_first_of("0123456789", at);
  std::uint64_t number = 0;
  if (digits == name.npos || digits > at + 8) return std::nullopt;
  std::from_chars(name.data() + digits, name.data() + name.size(), number);
  return number;
}

// Norms, the biases behind a sum over ranks and the router are copies: megatron/core/transformer and tensor_parallel/layers.py, RowParallelLinear, at
// core_v0.19.0. All else is cut.
bool is_copy(std::string_view name) {
  constexpr std::string_view copies[] = {"norm", "ln_", "ln1", "ln2", "bias", "router", "gate.weight"};
  return std::any_of(std::begin(copies), std::end(copies), [&](std::string_view part) { return name.find(part) != name.npos; });
}

class LayingOut {
 public:
  LayingOut(AskedLayout asked, const UserConfigHints& hints) : asked_(asked), hints_(hints) {}

  Result<LaidOut> lay() {
    fewer_ranks();
    names();
    if (asked_.experts > 0 && !names_experts()) no_experts();
    if (auto problem = parts_problem()) return std::move(*problem);
    layout();
    if (asked_.instances > 1) instances();
    for (const Named& parameter : model_) place(parameter);
    if (asked_.chunks > 1) out_.model_chunks = chunks_;
    out_.ranks = asked_.ranks;
    return std::move(out_);
  }

 private:
  std::uint64_t parts() const { return asked_.stages * asked_.chunks; }

  // What one of many tensor-parallel ranks, stages or shares of experts does, the others do: two tell them apart, three stages the one between.
  void fewer_ranks() {
    if (asked_.ranks <= ranks_replayed_max) return;
    const AskedLayout all = asked_;
    const std::uint64_t data = asked_.data();
    asked_.tensor = few(all.tensor);
    asked_.expert_tensor = all.expert_tensor > 1 ? std::gcd(all.expert_tensor, asked_.tensor) : 1;
    asked_.stages = few(all.stages);
    asked_.experts_over = std::gcd(all.experts_over, asked_.tensor * asked_.context * data / asked_.expert_tensor);
    asked_.ranks = data * asked_.model();
    const std::pair<const char*, std::pair<std::uint64_t, std::uint64_t>> sizes[] = {{"tensor-parallel ranks", {all.tensor, asked_.tensor}},
                                                                                     {"pipeline stages", {all.stages, asked_.stages}},
                                                                                     {"ranks with other experts", {all.experts_over, asked_.experts_over}}};
    std::string fewer;
    for (const auto& [what, size] : sizes)
      if (size.first != size.second) fewer += fmt::format("{}{} {} for {}", fewer.empty() ? "" : ", ", size.second, what, size.first);
    if (!fewer.empty()) out_.not_judged.push_back(fmt::format("the world at its size: {} of {} ranks are replayed, with {}", asked_.ranks, all.ranks, fewer));
  }

  // A stand-in has a layer for each part of the model, and in each as many experts as ranks divide.
  void names() {
    for (const json& parameter : hints_.parameters) model_.push_back({parameter["name"], parameter["numel"]});
    if (!hints_.stand_in || (layers().size() >= parts() && asked_.experts == 0)) return;
    model_ = {{"embed", 40}};
    for (std::uint64_t i = 0; i < std::max<std::uint64_t>(parts(), 2); ++i) {
      const std::string layer = "layer" + std::to_string(i);
      model_.push_back({layer + ".weight", 48});
      model_.push_back({layer + ".norm", 3});
      if (asked_.experts > 0) model_.push_back({layer + ".router.weight", 6});
      for (std::uint64_t e = 0; e < std::min(asked_.experts, asked_.experts_over * 2); ++e) model_.push_back({layer + ".expert" + std::to_string(e) + ".weight", 16});
    }
    model_.push_back({"head", 40});
  }

  bool names_experts() const {
    return std::any_of(model_.begin(), model_.end(), [](const Named& p) { return expert_of(p.name).has_value(); });
  }

  void no_experts() {
    out_.not_modelled.emplace_back("/num_experts: experts, of which --model names none");
    asked_.experts = 0;
    asked_.experts_over = asked_.expert_tensor = 1;
  }

  std::vector<std::string_view> layers() const {
    std::vector<std::string_view> out;
    for (const Named& p : model_)
      if (const std::string_view layer = layer_of(p.name); !layer.empty() && std::find(out.begin(), out.end(), layer) == out.end()) out.push_back(layer);
    return out;
  }

  std::optional<InputError> parts_problem() const {
    if (parts() == 1 || layers().size() >= parts()) return std::nullopt;
    return InputError{"/pipeline_model_parallel_size",
                      fmt::format("makes {} parts of the model with its virtual stages, and --model has {} layers; expected a layer for each part", parts(), layers().size())};
  }

  void layout() {
    json out = json::object();
    const std::pair<const char*, std::uint64_t> sizes[] = {{"tp", asked_.tensor}, {"cp", asked_.context}, {"pp", asked_.stages}, {"ep", asked_.experts_over}};
    for (const auto& [name, size] : sizes)
      if (size > 1) out[name] = size;
    if (asked_.experts > 0 && asked_.expert_tensor != asked_.tensor) out["etp"] = asked_.expert_tensor;
    if (asked_.stages_before_data && asked_.stages > 1) out["order"] = "tp-cp-ep-pp-dp";
    if (!out.empty()) out_.layout = std::move(out);
  }

  // Groups of several optimizer instances are no dimension of a layout.
  void instances() {
    if (asked_.data() * asked_.context % asked_.instances != 0) return;  // the framework says so
    Scenario world;
    world.world_size = static_cast<std::uint32_t>(asked_.ranks);
    std::map<std::string, std::uint32_t> sizes;
    for (const char* name : {"tp", "cp", "pp"})
      if (out_.layout.is_object() && out_.layout.contains(name)) sizes[name] = out_.layout[name];
    world.engine.pipeline_stages = static_cast<std::uint32_t>(asked_.stages);
    if (!sizes.empty()) world.layout = RankLayout::of(out_.layout.value("order", ""), sizes, world.world_size).value();
    std::map<std::string, std::set<std::vector<std::uint32_t>>> met;
    const WorldGroups all(world);
    for (std::uint32_t rank = 0; rank < world.world_size; ++rank) {
      const ParallelGroups groups = all.of(static_cast<std::uint32_t>(asked_.instances), rank);
      met["instance"].insert(groups.instance.ranks.listed());
      met["between_instances"].insert(groups.between_instances.ranks.listed());
      if (asked_.has_parts()) met["of_instance"].insert(groups.of_instance.ranks.listed());
    }
    for (const auto& [name, sets] : met) out_.groups[name] = sets;
  }

  // Layers in equal parts, in their order; what stands before the first one is in the first part, what stands behind it in the last.
  std::uint64_t part_of(const std::string& name, const std::vector<std::string_view>& all) {
    const std::string_view layer = layer_of(name);
    if (layer.empty()) return met_layer_ ? parts() - 1 : 0;
    met_layer_ = true;
    const auto at = static_cast<std::uint64_t>(std::find(all.begin(), all.end(), layer) - all.begin());
    return at * parts() / all.size();
  }

  void place(const Named& parameter) {
    if (all_layers_.empty()) all_layers_ = layers();
    const std::uint64_t part = part_of(parameter.name, all_layers_), stage = part % asked_.stages;
    const bool embedding = asked_.tied && asked_.stages > 1 && hints_.stand_in;
    if (embedding && parameter.name == "head") return;
    const auto expert = asked_.experts > 0 ? expert_of(parameter.name) : std::nullopt;
    const std::uint64_t over = expert ? asked_.expert_tensor : asked_.tensor;
    const bool copy = is_copy(parameter.name), cut = !copy && over > 1;
    json entry{{"name", parameter.name}, {"numel", parameter.numel}};
    if (cut) {
      entry["numel"] = (parameter.numel + over - 1) / over * over;
      entry["sharded_over"] = expert ? "etp" : "tp";
    }
    if (stage > 0) entry["pipeline_stage"] = stage;
    if (expert) entry["expert"] = *expert;
    const bool summed = copy && !expert && asked_.sequence_parallel && asked_.tensor > 1;
    if (summed) entry["summed_over"] = "tp";
    json attributes = json::array();
    // _initialize_affine_weight sets it of every weight of a parallel layer, of an expert's too where its ranks are not cut.
    if (!copy && asked_.tensor > 1) attributes.push_back("tensor_model_parallel");
    if (summed) attributes.push_back("sequence_parallel");
    if (embedding && parameter.name == "embed") attributes.insert(attributes.end(), {"shared_embedding", "shared"});
    if (!attributes.empty()) out_.attributes[parameter.name] = std::move(attributes);
    if (chunks_.empty()) chunks_.resize(asked_.chunks);
    chunks_[part / asked_.stages].push_back(parameter.name);
    out_.parameters.push_back(std::move(entry));
  }

  AskedLayout asked_;
  const UserConfigHints& hints_;
  std::vector<Named> model_;
  std::vector<std::string_view> all_layers_;
  std::vector<std::vector<std::string>> chunks_;  // names, by chunk
  bool met_layer_ = false;
  LaidOut out_;
};

}  // namespace

Result<LaidOut> lay_out(AskedLayout asked, const UserConfigHints& hints) { return LayingOut(asked, hints).lay(); }

}  // namespace gradledger::megatron
