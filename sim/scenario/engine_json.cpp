#include "sim/scenario/engine_json.h"

#include <map>
#include <string>
#include <utility>

#include "sim/scenario/optimizer_json.h"
#include "sim/scenario/schema.h"
#include "sim/scenario/spelling.h"

namespace gradledger {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

AsOf as_of_from_json(const json& as_of) {
  AsOf out;
  if (as_of.is_string()) {
    out.base = as_of;
    return out;
  }
  for (const auto& [key, value] : as_of.items()) {
    if (key == "base") out.base = value;
    else out.switches[key] = value;
  }
  return out;
}

Result<std::vector<OptimizerGroup>> param_groups_from_json(const json& groups, const std::vector<Parameter>& parameters) {
  std::map<std::string, std::uint32_t> by_name;
  for (std::uint32_t p = 0; p < parameters.size(); ++p) by_name.emplace(parameters[p].name, p);
  std::vector<bool> listed(parameters.size());
  std::vector<OptimizerGroup> out(groups.size());
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const json& names = groups[g]["params"];
    for (std::size_t i = 0; i < names.size(); ++i) {
      const std::string where = "/engine/param_groups/" + std::to_string(g) + "/params/" + std::to_string(i);
      const auto named = by_name.find(names[i].get<std::string>());
      if (named == by_name.end()) return InputError{where, "names no parameter; expected one of /parameters"};
      const std::uint32_t p = named->second;
      if (parameters[p].tied_to) return InputError{where, "is another use of " + json(parameters[*parameters[p].tied_to].name).dump() + "; expected that one, once"};
      if (listed[p]) return InputError{where, "stands in the groups before; expected each parameter once"};
      listed[p] = true;
      out[g].parameters.push_back(p);
    }
    if (groups[g].contains("lr")) out[g].learning_rate = groups[g]["lr"];
    if (groups[g].contains("weight_decay")) out[g].weight_decay = groups[g]["weight_decay"];
  }
  for (std::uint32_t p = 0; p < parameters.size(); ++p)
    if (parameters[p].has_gradient() && !listed[p])
      return InputError{"/engine/param_groups", "leave out " + json(parameters[p].name).dump() + "; expected every parameter that is trainable"};
  return out;
}

ordered_json param_groups_to_json(const std::vector<OptimizerGroup>& groups, const std::vector<Parameter>& parameters) {
  ordered_json out = ordered_json::array();
  for (const OptimizerGroup& group : groups) {
    ordered_json entry{{"params", ordered_json::array()}};
    for (std::uint32_t p : group.parameters) entry["params"].push_back(parameters[p].name);
    if (group.learning_rate) entry["lr"] = *group.learning_rate;
    if (group.weight_decay) entry["weight_decay"] = *group.weight_decay;
    out.push_back(std::move(entry));
  }
  return out;
}

// Those with samples of their own: no batch counts the stages of a pipeline, or the ranks that share a sequence or a layer. Experts lie on ranks that
// are counted. 0 where the sizes do not divide the world, which the check of the layout reports.
std::uint32_t data_parallel_ranks(const EngineConfig& engine, std::uint32_t tensor_parallel, std::uint32_t world_size) {
  const std::uint64_t sharing = std::uint64_t{engine.pipeline_stages} * engine.sequence_parallel_size * tensor_parallel;
  return world_size % sharing == 0 ? static_cast<std::uint32_t>(world_size / sharing) : 0;
}

// DeepSpeed asks an mpu for the ranks with samples of their own. AutoTP cuts the model without one, and its ranks are counted like any others.
bool cuts_the_model(const json& config) {
  const auto part = config.find("tensor_parallel");
  if (part == config.end() || !part->is_object()) return false;
  const auto size = part->find("autotp_size");
  return size != part->end() && size->is_number_unsigned() && *size > 1;
}

// The schema's definition of a framework's configuration, where it has one.
std::string part_of(const json& engine) { return engine["framework"].get<std::string>() + "_config"; }

// Another framework's configuration may have an optimizer of any form: it is the driver's to read.
bool knows_optimizers(const json& engine) {
  const json& parts = scenario_schema()["definitions"];
  return parts.contains(part_of(engine)) && parts[part_of(engine)]["properties"].contains("optimizer");
}

// The schema knows the configurations of some frameworks; what it cannot say of them, or knows nothing of, they say.
bool config_from_json(const ConfigReader& framework, const json& engine, std::uint32_t ranks, FrameworkConfig& out, ErrorList& errors) {
  const std::string part = part_of(engine);
  if (scenario_schema()["definitions"].contains(part)) {
    const std::vector<InputError> wrong = all_against_part("/definitions/" + part, engine["config"], "/engine/config");
    errors.add(wrong);
    if (!wrong.empty()) return false;
  }
  auto config = framework.config_from_json(engine["config"], ranks, "/engine/config");
  if (config) out = std::move(config).value();
  else errors.add(config.error());
  return config.ok();
}

}  // namespace

void config_alone(const json& engine, ConfigReaders readers, ErrorList& errors) {
  const bool there = engine.is_object() && engine.contains("framework") && engine["framework"].is_string() && engine.contains("config") && engine["config"].is_object();
  const ConfigReader* framework = there ? readers.named(engine["framework"].get<std::string>()) : nullptr;
  FrameworkConfig unused;
  if (framework) config_from_json(*framework, engine, 0, unused, errors);
}

EngineConfig engine_from_json(const json& engine, std::uint32_t world_size, const std::optional<RankLayout>& layout, const std::vector<Parameter>& parameters,
                              ConfigReaders readers, ErrorList& errors) {
  const auto laid = [&](const char* dimension) { return layout ? layout->size(dimension) : 1u; };
  EngineConfig out;
  out.framework = engine["framework"];
  if (engine.contains("as_of")) out.as_of = as_of_from_json(engine["as_of"]);
  out.expert_parallel_size = engine.value("expert_parallel_size", laid("ep"));
  out.sequence_parallel_size = engine.value("sequence_parallel_size", 1u);
  out.pipeline_stages = engine.value("pipeline_stages", laid("pp"));
  const ConfigReader* framework = readers.named(out.framework);
  if (!framework) {
    std::string known;
    for (const std::string& id : readers.ids()) known += (known.empty() ? "" : ", ") + json(id).dump();
    errors.add({"/engine/framework", "is " + engine["framework"].dump() + "; expected one of " + known + suggestion(out.framework, readers.ids())});
    return out;
  }
  const bool config = config_from_json(*framework, engine, data_parallel_ranks(out, cuts_the_model(engine["config"]) ? 1 : laid("tp"), world_size), out.config, errors);
  const bool in_config = engine["config"].contains("optimizer") && knows_optimizers(engine), beside = engine.contains("optimizer");
  if (in_config && beside) {
    errors.add(InputError{"/engine/optimizer", "is given, and so is /engine/config/optimizer; expected one of the two"});
  } else if (beside || (in_config && config)) {  // the framework has looked at its own one
    const auto optimizer =
        in_config ? optimizer_from_json(engine["config"]["optimizer"], "/engine/config/optimizer") : optimizer_from_json(engine["optimizer"], "/engine/optimizer");
    if (optimizer && optimizer->type == OptimizerType::muon && !knows_optimizers(engine))
      errors.add({"/engine/optimizer/type", "is \"Muon\", which " + out.framework + " has no model of here; expected SGD, Adam or AdamW"});
    if (optimizer) out.optimizer = *optimizer;
    else errors.add(optimizer.error());
  }
  if (engine.contains("param_groups")) {
    auto groups = param_groups_from_json(engine["param_groups"], parameters);
    if (groups) out.param_groups = std::move(groups).value();
    else errors.add(groups.error());
  }
  return out;
}

ordered_json engine_to_json(const EngineConfig& engine, const std::vector<Parameter>& parameters) {
  ordered_json out;
  out["framework"] = engine.framework;
  if (engine.as_of.switches.empty()) {
    out["as_of"] = engine.as_of.base;
  } else {
    out["as_of"] = {{"base", engine.as_of.base}};
    for (const auto& [name, value] : engine.as_of.switches) out["as_of"][name] = value;
  }
  out["config"] = ordered_json::parse(engine.config.json_text());
  out["optimizer"] = optimizer_to_json(engine.optimizer);
  if (!engine.param_groups.empty()) out["param_groups"] = param_groups_to_json(engine.param_groups, parameters);
  if (engine.expert_parallel_size != 1) out["expert_parallel_size"] = engine.expert_parallel_size;
  if (engine.sequence_parallel_size != 1) out["sequence_parallel_size"] = engine.sequence_parallel_size;
  if (engine.pipeline_stages != 1) out["pipeline_stages"] = engine.pipeline_stages;
  return out;
}

}  // namespace gradledger
