#include "sim/scenario/script_json.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <set>
#include <string>

#include "sim/base/error_list.h"
#include "sim/scenario/factor.h"
#include "sim/scenario/json_reader.h"
#include "sim/scenario/loop_json.h"
#include "sim/scenario/layout.h"
#include "sim/scenario/spelling.h"
#include "sim/scenario/timeline.h"

namespace gradledger {
namespace {

using nlohmann::json;
using Problem = std::optional<InputError>;

class ScriptReader {
 public:
  ScriptReader(const Scenario& scenario, const ConfigReader& framework, const std::vector<std::string>& wrong, ErrorList& errors)
      : scenario_(scenario), framework_(framework), wrong_(wrong), errors_(errors) {
    for (const Parameter& parameter : scenario.parameters) names_.emplace(parameter.name, parameter.has_gradient());
  }

  void read_items(const json& items, const std::string& where, std::vector<ScriptItem>& into) {
    for (std::size_t i = 0; i < items.size() && !errors_.full(); ++i) {
      const std::string here = where + "/" + std::to_string(i);
      if (is_wrong(items[i], here)) continue;
      const auto entry = items[i].begin();
      ScriptItem item;
      if (const Problem problem = read_item(entry.key(), entry.value(), here, item)) errors_.add(*problem);
      into.push_back(std::move(item));
    }
  }

 private:
  // Of an entry itself: what is wrong in the entries that it holds is theirs.
  bool is_wrong(const json& item, const std::string& where) const {
    const bool holds = item.is_object() && item.size() == 1 && (item.contains("no_sync") || item.contains("coalesce") || item.contains("repeat"));
    const std::string inside = !holds ? "" : where + "/" + item.begin().key() + (item.begin().value().is_object() ? "/of/" : "/");
    return std::any_of(wrong_.begin(), wrong_.end(),
                       [&](const std::string& pointer) { return pointer == where || (pointer.starts_with(where + "/") && !(holds && pointer.starts_with(inside))); });
  }

  Problem read_item(const std::string& key, const json& value, const std::string& where, ScriptItem& item) {
    const std::string here = where + "/" + key;
    if (value.is_object() && value.contains("ranks"))
      if (Problem problem = read_ranks(value["ranks"], here + "/ranks", item.ranks)) return problem;
    for (const auto& [name, kind] : bare_events)
      if (key == name) {
        item.kind = kind;
        return std::nullopt;
      }
    if (key == "backward") {
      return read_backward(value, here, item);
    } else if (key == "set_boundary") {
      item.kind = ScriptKind::set_boundary;
      item.boundary = value.is_boolean() ? value.get<bool>() : value["value"].get<bool>();
    } else if (key == "step") {
      return read_step(value, here, item);
    } else if (key == "zero_grad") {
      const std::string of = value.is_string() ? value : value["of"];
      item.kind = of == "engine" ? ScriptKind::engine_zero_grad : ScriptKind::optimizer_zero_grad;
      item.set_to_none = value.is_string() || value.value("set_to_none", true);
    } else if (key == "overflow") {
      return read_overflow(value, here, item);
    } else if (key == "set_gradient") {
      return read_set_gradient(value, here, item);
    } else if (key == "scale_gradients") {
      item.kind = ScriptKind::scale_gradients;
      auto by = formula_from_json(value["by"], here + "/by");
      if (!by) return by.error();
      item.by = std::move(by).value();
    } else if (key == "clip") {
      item.kind = ScriptKind::clip;
      item.max_norm = value["max_norm"];
      return read_group(value, "norm_over", "rank", here, item);
    } else if (key == "all_reduce") {
      item.kind = ScriptKind::all_reduce;
      item.reduced = value.value("of", "gradients") == "gradients" ? Reduced::gradients : Reduced::scalar;
      item.mean = value.value("as", "mean") == "mean";
      return read_group(value, "over", "world", here, item);
    } else if (key == "event") {
      return read_own_event(value, here, item);
    } else if (key == "no_sync") {
      return read_no_sync(value, here, item);
    } else if (key == "coalesce") {
      item.kind = ScriptKind::coalesce;
      read_items(value, here, item.items);
    } else if (key == "raise") {
      item.kind = ScriptKind::raise;
      item.caught = value.value("caught", false);
    } else {
      item.kind = ScriptKind::repeat;
      item.times = value["times"];
      read_items(value["of"], here + "/of", item.items);
    }
    return std::nullopt;
  }

  Problem read_no_sync(const json& value, const std::string& here, ScriptItem& item) {
    item.kind = ScriptKind::no_sync;
    const bool named = value.is_object();
    read_items(named ? value["of"] : value, named ? here + "/of" : here, item.items);
    if (named && item.ranks.empty()) return InputError{here + "/ranks", "names every rank; expected the events alone, as an array"};
    return std::nullopt;
  }

  Problem read_step(const json& value, const std::string& here, ScriptItem& item) const {
    item.kind = ScriptKind::step;
    item.past_scaler = value.value("past_scaler", false);
    item.update = value.value("update", false);
    if (item.update && scenario_.contract.window != Window::marked)
      return InputError{here + "/update", "marks where the loop means to update; expected it with /contract/window \"marked\" alone"};
    return std::nullopt;
  }

  Problem read_backward(const json& value, const std::string& here, ScriptItem& item) {
    item.kind = ScriptKind::backward;
    item.micro_batches = value.value("micro_batches", 1u);
    if (value.contains("of")) item.of = value["of"];
    if (value.contains("micro_batch")) item.micro_batch = value["micro_batch"];
    item.scale_wrt_gas = value.value("scale_wrt_gas", true);
    item.phases = value.value("phases", 1u);
    item.direct = value.value("direct", false);
    item.sum_of = value.value("sum_of", 1u);
    item.past_scaler = value.value("past_scaler", false);
    if (value.contains("raises_after")) item.raises_after = value["raises_after"];
    if (item.sum_of != 1 && (item.of || item.micro_batches != 1))
      return InputError{here + "/sum_of", "adds up losses whose forwards run here, in one backward; expected it without \"of\" and \"micro_batches\""};
    if (item.of && item.micro_batches != 1) return InputError{here + "/micro_batches", "goes with backwards that run their own forward; expected it without \"of\""};
    if (value.contains("weight")) {
      auto weight = weight_from_json(value["weight"], scenario_.world_size, item.micro_batches, here + "/weight");
      if (!weight) return weight.error();
      item.weight = std::move(weight).value();
    }
    if (value.contains("uses"))
      if (Problem problem = read_names(value["uses"], here + "/uses", item.uses)) return problem;
    for (const std::string& name : item.uses)
      if (!names_.at(name))
        return InputError{here + "/uses", "names " + json(name).dump() + ", which has no gradient of its own; expected parameters that are trainable and not tied to others"};
    if (!value.contains("order")) return std::nullopt;
    for (const auto& [key, names] : value["order"].items()) {
      std::uint32_t rank = 0;
      const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), rank);
      if (error != std::errc{} || end != key.data() + key.size() || rank >= scenario_.world_size || std::to_string(rank) != key)
        return InputError{here + "/order", "has the key " + json(key).dump() + "; expected ranks from 0 to " + std::to_string(scenario_.world_size - 1)};
      if (Problem problem = read_names(names, here + "/order/" + key, item.order[rank])) return problem;
    }
    return std::nullopt;
  }

  Problem read_own_event(const json& value, const std::string& here, ScriptItem& item) const {
    const std::string name = value["name"];
    const auto events = framework_.events();
    const auto event = std::find_if(events.begin(), events.end(), [&](const FrameworkEvent& e) { return e.name == name; });
    if (event == events.end()) {
      std::vector<std::string> known;
      std::string names;
      for (const FrameworkEvent& e : events) names += (names.empty() ? "" : ", ") + json(known.emplace_back(e.name)).dump();
      return InputError{here + "/name", "is " + json(name).dump() + ", which is no event of the framework's own; expected " +
                                            (known.empty() ? "none: \"" + scenario_.engine.framework + "\" has no such event" : "one of " + names + suggestion(name, known))};
    }
    json arguments = value;
    arguments.erase("name");
    arguments.erase("ranks");
    auto read = framework_.event_from_json(*event, arguments, here);
    if (!read) return read.error();
    item.kind = ScriptKind::of_framework;
    const auto switches = framework_.switches_reductions(*event, *read);
    item.event = {name, std::move(read).value(), event->reduces, event->heeds_switches, switches};
    return std::nullopt;
  }

  Problem read_group(const json& value, const char* key, const char* other, const std::string& here, ScriptItem& item) const {
    item.over = value.value(key, other);
    const Groups groups = named_groups(scenario_);
    if (groups.contains(item.over)) return std::nullopt;
    return InputError{here + "/" + key, "is " + json(item.over).dump() + ", which is no group; expected one of " + groups.names()};
  }

  Problem read_names(const json& names, const std::string& where, std::vector<std::string>& into) {
    std::set<std::string> seen;
    for (std::size_t i = 0; i < names.size(); ++i) {
      const std::string name = names[i], at = where + "/" + std::to_string(i);
      if (Problem problem = check_named(name, at)) return problem;
      if (!seen.insert(name).second) return InputError{at, "names " + json(name).dump() + " again; expected each parameter once"};
      into.push_back(name);
    }
    return std::nullopt;
  }

  Problem read_overflow(const json& value, const std::string& here, ScriptItem& item) {
    item.kind = ScriptKind::overflow;
    item.micro_batch = value["micro_batch"];
    if (value.contains("rank")) {
      if (value.contains("ranks")) return InputError{here + "/rank", "is given, and so is ranks; expected one of the two"};
      const std::uint32_t rank = value["rank"];
      if (rank >= scenario_.world_size)
        return InputError{here + "/rank", "is rank " + std::to_string(rank) + " of a world of " + std::to_string(scenario_.world_size) + "; expected ranks from 0 to " +
                                              std::to_string(scenario_.world_size - 1)};
      if (scenario_.world_size > 1) item.ranks = {rank};
    }
    if (value.contains("parameter")) {
      item.uses.push_back(value["parameter"]);
      if (Problem problem = check_named(item.uses.front(), here + "/parameter")) return problem;
    }
    const std::string planted = value.value("value", "inf");
    item.planted = planted == "inf" ? PlantedValue::infinity : planted == "-inf" ? PlantedValue::minus_infinity : PlantedValue::not_a_number;
    return std::nullopt;
  }

  Problem read_set_gradient(const json& value, const std::string& here, ScriptItem& item) {
    item.kind = ScriptKind::set_gradient;
    item.local = value.value("api", "full") == "local";
    item.uses.push_back(value["parameter"]);
    if (Problem problem = check_named(item.uses.front(), here + "/parameter")) return problem;
    if (!names_.at(item.uses.front()))
      return InputError{here + "/parameter",
                        "names " + json(item.uses.front()).dump() + ", which has no gradient of its own; expected a parameter that is trainable and not tied to another"};
    const auto factor = fraction(value["times"]);
    if (!factor || !exact_factor(*factor)) return InputError{here + "/times", "is no factor that every format multiplies exactly; expected " + exact_factors()};
    item.factor = *factor;
    return std::nullopt;
  }

  Problem check_named(const std::string& name, const std::string& where) const {
    if (names_.contains(name)) return std::nullopt;
    return InputError{where, "names no parameter: " + json(name).dump() + "; expected one of " + parameter_names()};
  }

  Problem read_ranks(const json& ranks, const std::string& where, std::vector<std::uint32_t>& into) {
    into = ranks.get<std::vector<std::uint32_t>>();
    std::set<std::uint32_t> seen;
    for (std::size_t i = 0; i < into.size(); ++i) {
      const std::string at = where + "/" + std::to_string(i), name = "rank " + std::to_string(into[i]);
      if (into[i] >= scenario_.world_size)
        return InputError{at, "is " + name + " of a world of " + std::to_string(scenario_.world_size) + "; expected ranks from 0 to " + std::to_string(scenario_.world_size - 1)};
      if (!seen.insert(into[i]).second) return InputError{at, "names " + name + " again; expected each rank once"};
    }
    std::sort(into.begin(), into.end());
    if (into.size() == scenario_.world_size) into.clear();
    return std::nullopt;
  }

  std::string parameter_names() const {
    std::string out;
    for (std::size_t i = 0; i < scenario_.parameters.size() && i < 16; ++i) out += (i ? ", " : "") + json(scenario_.parameters[i].name).dump();
    return scenario_.parameters.size() > 16 ? out + ", ..." : out;
  }

  const Scenario& scenario_;
  const ConfigReader& framework_;
  const std::vector<std::string>& wrong_;
  std::map<std::string, bool> names_;  // of the parameters, and whether they have a gradient of their own
  ErrorList& errors_;
};

}  // namespace

std::vector<ScriptItem> script_from_json(const json& script, const Scenario& scenario, const ConfigReader& framework, const std::vector<std::string>& wrong, ErrorList& errors) {
  std::vector<ScriptItem> out;
  ScriptReader(scenario, framework, wrong, errors).read_items(script, "/script", out);
  return out;
}

}  // namespace gradledger
