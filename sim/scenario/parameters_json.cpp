#include "sim/scenario/parameters_json.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "sim/base/error_list.h"
#include "sim/base/limits.h"
#include "sim/scenario/layout.h"
#include "sim/scenario/model_shapes/shapes_file.h"

namespace gradledger {
namespace {

using nlohmann::json;

// What a tied parameter takes from the one that it is tied to, and what it cannot have besides.
std::optional<InputError> tie(const json& entry, const std::string& where, std::vector<Parameter>& parameters, std::size_t i, const std::map<std::string, std::uint32_t>& by_name) {
  const std::string name = entry["tied_to"];
  const auto root = by_name.find(name);
  if (root == by_name.end() || root->second == i)
    return InputError{where + "/tied_to", "names no other parameter: " + json(name).dump() + "; expected the name of a parameter of the scenario"};
  const Parameter& shared = parameters[root->second];
  if (!shared.has_gradient())
    return InputError{where + "/tied_to", "names " + json(name).dump() + ", which has no gradient of its own; expected a parameter that is trainable and not tied itself"};
  if (shared.numel != parameters[i].numel)
    return InputError{where + "/numel",
                      "is " + std::to_string(parameters[i].numel) + ", but " + json(name).dump() + " has " + std::to_string(shared.numel) + " elements; expected the same"};
  if (shared.part) return InputError{where + "/tied_to", "names " + json(name).dump() + ", which is cut in parts; expected a parameter that is whole"};
  parameters[i].tied_to = root->second;
  parameters[i].expert = shared.expert;
  parameters[i].pipeline_stage = shared.pipeline_stage;
  return std::nullopt;
}

Result<Parameter> parameter_from_json(const json& entry, const std::string& where) {
  Parameter parameter;
  parameter.name = entry["name"];
  if (!printable(parameter.name)) return InputError{where + "/name", "holds a control character; expected a name that can be printed"};
  parameter.trainable = entry.value("trainable", true);
  parameter.hooked_outputs = entry.value("hooked_outputs", 1u);
  parameter.on_side_stream = entry.value("produced_on", "compute") == "side";
  parameter.pipeline_stage = entry.value("pipeline_stage", 0u);
  if (entry.contains("expert")) parameter.expert = entry["expert"];
  parameter.summed_over = entry.value("summed_over", "");
  parameter.averaged_over = entry.value("averaged_over", "");
  for (const char* key : {"used_by", "trainable", "expert", "pipeline_stage", "sharded_over", "summed_over", "averaged_over"})
    if (entry.contains("tied_to") && entry.contains(key)) return InputError{where + "/" + key, "goes with the parameter that this one is tied to; expected it there"};
  if (!entry.contains("used_by")) return parameter;
  auto used_by = Predicate::parse(entry["used_by"].get<std::string>(), where + "/used_by");
  if (!used_by) return used_by.error();
  parameter.used_by = *used_by;
  return parameter;
}

// The set size of a group that a parameter names; 0 with an error.
std::uint32_t ranks_over(const Scenario& laid, const std::string& name, const std::string& where, ErrorList& errors) {
  const auto sets = stated_sets(laid, name);
  if (sets.empty()) {
    errors.add({where, "is " + json(name).dump() + ", which neither /layout nor /groups name; expected a group of theirs"});
    return 0;
  }
  if (std::all_of(sets.begin(), sets.end(), [&](const auto& set) { return set.size() == sets.front().size(); })) return static_cast<std::uint32_t>(sets.front().size());
  errors.add({where, "is " + json(name).dump() + ", whose sets have different numbers of ranks; expected as many in each"});
  return 0;
}

// How a parameter lies over the ranks that have it: one way at most. Into how many parts it is cut; 1: it is whole.
std::uint32_t parts_of(const json& entry, const std::string& where, const Scenario& laid, ErrorList& errors) {
  const char* stated = nullptr;
  std::uint32_t ranks = 1;
  for (const char* key : {"sharded_over", "summed_over", "averaged_over"}) {
    if (!entry.contains(key)) continue;
    if (stated) errors.add({where + "/" + key, std::string("stands beside ") + stated + "; expected one of them"});
    stated = key;
    ranks = ranks_over(laid, entry[key], where + "/" + key, errors);
  }
  if (!entry.contains("sharded_over") || ranks == 0) return 1;
  const std::uint64_t numel = entry["numel"];
  if (numel % ranks == 0) return ranks;
  errors.add({where + "/numel", "is " + std::to_string(numel) + ", which " + std::to_string(ranks) + " ranks of " + entry["sharded_over"].dump() +
                                    " do not share alike; expected a multiple of them"});
  return 1;
}

void add_parts(Parameter parameter, const std::string& over, std::uint32_t count, std::vector<Parameter>& out) {
  parameter.numel /= count;
  for (std::uint32_t number = 0; number < count; ++number) {
    if (count > 1) parameter.part = ParameterPart{over, number, count};
    out.push_back(parameter);
  }
}

std::vector<Parameter> with_shapes(const std::vector<TensorShape>& shapes) {
  std::vector<Parameter> out;
  for (const TensorShape& shape : shapes) {
    out.emplace_back();
    out.back().name = shape.name;
    out.back().numel = shape.numel;
  }
  return out;
}

// Whether there is room for them, here as in a list of parameters.
std::vector<Parameter> parameters_of_shapes(const json& given, const std::filesystem::path& directory, ErrorList& errors) {
  const bool published = given.contains("model");
  const std::string where = published ? "/parameters/model" : "/parameters/file";
  const std::string name = given[published ? "model" : "file"];
  const auto shapes = published ? Result<std::vector<TensorShape>>(shapes_of(*published_model(name))) : read_shapes(directory / name);
  if (!shapes) {
    errors.add(InputError{where, shapes.error().text()});
    return {};
  }
  const std::uint64_t total = numel_of(*shapes);
  const auto large = std::find_if(shapes->begin(), shapes->end(), [](const TensorShape& shape) { return shape.numel > limits::parameter_numel_max; });
  if (total > limits::model_numel_max) {
    errors.add({where, "names a model of " + std::to_string(total) + " elements; expected at most " + std::to_string(limits::model_numel_max)});
  } else if (large != shapes->end()) {
    errors.add(
        {where, "has tensor " + json(large->name).dump() + " of " + std::to_string(large->numel) + " elements; expected at most " + std::to_string(limits::parameter_numel_max)});
  } else {
    return with_shapes(*shapes);
  }
  return {};
}

// Null where they are those of none, or more is said of them.
const PublishedModel* published_model_with(const std::vector<Parameter>& parameters) {
  for (const PublishedModel& model : published_models()) {
    const std::vector<TensorShape>& shapes = shapes_of(model);
    if (shapes.size() == parameters.size() && shapes.front().name == parameters.front().name && numel_of(shapes) <= limits::model_numel_max && with_shapes(shapes) == parameters)
      return &model;
  }
  return nullptr;
}

}  // namespace

bool printable(const std::string& name) {
  return std::none_of(name.begin(), name.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; });
}

std::vector<Parameter> parameters_from_json(const json& parameters, const std::filesystem::path& directory, const Scenario* laid, ErrorList& errors) {
  if (parameters.is_object()) return parameters_of_shapes(parameters, directory, errors);
  const std::size_t before = errors.size();
  std::vector<Parameter> out;
  std::map<std::string, std::uint32_t> by_name;
  std::uint64_t total = 0, learned = 0;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const std::string where = "/parameters/" + std::to_string(i);
    auto read = parameter_from_json(parameters[i], where);
    if (!read) {
      errors.add(read.error());
      continue;
    }
    Parameter parameter = std::move(read).value();
    if (!by_name.emplace(parameter.name, static_cast<std::uint32_t>(out.size())).second)
      errors.add({where + "/name", json(parameter.name).dump() + " names two parameters; expected each name once"});
    const std::uint64_t numel = parameters[i]["numel"];
    total += numel;
    if (numel > limits::parameter_numel_max || total > limits::model_numel_max) {
      errors.add({where + "/numel", "makes the model larger than " + std::to_string(limits::model_numel_max) + " elements"});
      break;
    }
    parameter.numel = numel;
    if (parameter.trainable && !parameters[i].contains("tied_to")) learned += numel;
    const std::uint32_t parts = laid ? parts_of(parameters[i], where, *laid, errors) : 1;
    if (out.size() + parts > limits::parameters_max) {
      errors.add({where, "makes more than " + std::to_string(limits::parameters_max) + " parameters with the parts of all; expected fewer"});
      break;
    }
    add_parts(std::move(parameter), parameters[i].value("sharded_over", ""), parts, out);
  }
  if (errors.size() > before) return out;
  if (total == 0) errors.add(InputError{"/parameters", "have no elements; expected at least one"});
  else if (learned == 0) errors.add(InputError{"/parameters", "have no element that is trainable; expected at least one"});
  for (std::size_t i = 0; i < parameters.size(); ++i)
    if (parameters[i].contains("tied_to"))
      if (auto problem = tie(parameters[i], "/parameters/" + std::to_string(i), out, by_name.at(parameters[i]["name"]), by_name)) errors.add(*problem);
  return out;
}

nlohmann::ordered_json parameters_to_json(const std::vector<Parameter>& parameters) {
  if (const PublishedModel* model = published_model_with(parameters)) return {{"model", model->name}};
  nlohmann::ordered_json out = nlohmann::ordered_json::array();
  for (const Parameter& p : parameters) {
    if (p.part && p.part->number > 0) continue;
    nlohmann::ordered_json entry{{"name", p.name}, {"numel", p.numel * (p.part ? p.part->count : 1)}};
    if (p.used_by) entry["used_by"] = p.used_by->text();
    if (p.hooked_outputs != 1) entry["hooked_outputs"] = p.hooked_outputs;
    if (p.on_side_stream) entry["produced_on"] = "side";
    if (!p.trainable) entry["trainable"] = false;
    if (p.tied_to) entry["tied_to"] = parameters[*p.tied_to].name;
    if (p.expert && !p.tied_to) entry["expert"] = *p.expert;
    if (p.pipeline_stage != 0 && !p.tied_to) entry["pipeline_stage"] = p.pipeline_stage;
    if (p.part) entry["sharded_over"] = p.part->over;
    if (!p.summed_over.empty() && !p.tied_to) entry["summed_over"] = p.summed_over;
    if (!p.averaged_over.empty() && !p.tied_to) entry["averaged_over"] = p.averaged_over;
    out.push_back(std::move(entry));
  }
  return out;
}

}  // namespace gradledger
