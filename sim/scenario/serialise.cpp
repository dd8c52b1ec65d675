#include <algorithm>
#include <cmath>

#include "sim/scenario/engine_json.h"
#include "sim/scenario/loop_json.h"
#include "sim/scenario/mlp_json.h"
#include "sim/scenario/parameters_json.h"
#include "sim/scenario/parse.h"
#include "sim/scenario/script_json.h"

namespace gradledger {
namespace {

using nlohmann::ordered_json;

ordered_json with_ranks(const ScriptItem& item) {
  ordered_json out = ordered_json::object();
  if (!item.ranks.empty()) out["ranks"] = item.ranks;
  return out;
}

ordered_json items_to_json(const std::vector<ScriptItem>& items);

ordered_json backward_to_json(const ScriptItem& item) {
  ordered_json body = with_ranks(item);
  if (item.micro_batches != 1) body["micro_batches"] = item.micro_batches;
  if (item.of) body["of"] = *item.of;
  if (item.micro_batch) body["micro_batch"] = *item.micro_batch;
  if (!item.uses.empty()) body["uses"] = item.uses;
  if (!item.scale_wrt_gas) body["scale_wrt_gas"] = false;
  if (item.phases != 1) body["phases"] = item.phases;
  if (item.direct) body["direct"] = true;
  if (item.past_scaler) body["past_scaler"] = true;
  if (item.sum_of != 1) body["sum_of"] = item.sum_of;
  if (item.raises_after) body["raises_after"] = *item.raises_after;
  if (!item.weight.empty()) body["weight"] = weight_to_json(item.weight);
  for (const auto& [rank, names] : item.order) body["order"][std::to_string(rank)] = names;
  return body;
}

const char* key_of_bare(ScriptKind kind) {
  return std::find_if(bare_events.begin(), bare_events.end(), [&](const auto& bare) { return bare.second == kind; })->first;
}

ordered_json zero_grad_to_json(const ScriptItem& item) {
  ordered_json body = with_ranks(item);
  const char* of = item.kind == ScriptKind::engine_zero_grad ? "engine" : "optimizer";
  if (item.ranks.empty() && item.set_to_none) return {{"zero_grad", of}};
  body["of"] = of;
  if (!item.set_to_none) body["set_to_none"] = false;
  return {{"zero_grad", body}};
}

ordered_json item_to_json(const ScriptItem& item) {
  ordered_json body = with_ranks(item);
  switch (item.kind) {
    case ScriptKind::forward:
    case ScriptKind::finalize:
    case ScriptKind::save:
    case ScriptKind::restore:
    case ScriptKind::unscale: return {{key_of_bare(item.kind), body}};
    case ScriptKind::backward: return {{"backward", backward_to_json(item)}};
    case ScriptKind::set_boundary:
      if (item.ranks.empty()) return {{"set_boundary", item.boundary}};
      body["value"] = item.boundary;
      return {{"set_boundary", body}};
    case ScriptKind::step:
      if (item.update) body["update"] = true;
      if (item.past_scaler) body["past_scaler"] = true;
      return {{"step", body}};
    case ScriptKind::engine_zero_grad:
    case ScriptKind::optimizer_zero_grad: return zero_grad_to_json(item);
    case ScriptKind::overflow: {
      constexpr const char* values[] = {"inf", "-inf", "nan"};
      body["micro_batch"] = *item.micro_batch;
      if (!item.uses.empty()) body["parameter"] = item.uses.front();
      if (item.planted != PlantedValue::infinity) body["value"] = values[static_cast<std::size_t>(item.planted)];
      return {{"overflow", body}};
    }
    case ScriptKind::set_gradient:
      body["parameter"] = item.uses.front();
      body["times"] = item.factor;
      if (item.local) body["api"] = "local";
      return {{"set_gradient", body}};
    case ScriptKind::scale_gradients: body["by"] = item.by.text(); return {{"scale_gradients", body}};
    case ScriptKind::clip:
      body["max_norm"] = item.max_norm;
      body["norm_over"] = item.over;
      return {{"clip", body}};
    case ScriptKind::all_reduce:
      body["of"] = item.reduced == Reduced::gradients ? "gradients" : "scalar";
      body["over"] = item.over;
      body["as"] = item.mean ? "mean" : "sum";
      return {{"all_reduce", body}};
    case ScriptKind::of_framework:
      body["name"] = item.event.name;
      body.update(ordered_json::parse(item.event.arguments.json_text()));
      return {{"event", body}};
    case ScriptKind::raise:
      if (item.caught) body["caught"] = true;
      return {{"raise", body}};
    case ScriptKind::coalesce: return {{"coalesce", items_to_json(item.items)}};
    case ScriptKind::no_sync:
      if (item.ranks.empty()) return {{"no_sync", items_to_json(item.items)}};
      body["of"] = items_to_json(item.items);
      return {{"no_sync", body}};
    case ScriptKind::repeat: return {{"repeat", {{"times", item.times}, {"of", items_to_json(item.items)}}}};
  }
  return {};
}

ordered_json items_to_json(const std::vector<ScriptItem>& items) {
  ordered_json out = ordered_json::array();
  for (const ScriptItem& item : items) out.push_back(item_to_json(item));
  return out;
}

ordered_json element_to_json(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return value;
}

ordered_json values_to_json(const Scenario& scenario) {
  ordered_json table = ordered_json::array();
  for (const auto& micro_batch : *scenario.gradients.values) {
    ordered_json ranks = ordered_json::array();
    for (const std::vector<double>& flat : micro_batch) {
      ordered_json rank = ordered_json::object();
      std::size_t at = 0;
      for (const Parameter& p : scenario.parameters) {
        if (!p.part || p.part->number == 0) rank[p.name] = ordered_json::array();
        for (std::uint32_t i = 0; i < p.numel; ++i) rank[p.name].push_back(element_to_json(flat[at++]));
      }
      ranks.push_back(std::move(rank));
    }
    table.push_back(std::move(ranks));
  }
  return table;
}

ordered_json gradients_to_json(const Scenario& scenario) {
  const Gradients& gradients = scenario.gradients;
  constexpr const char* names[] = {"probe", "normal", "adversarial", "values", "mlp"};
  ordered_json out;
  out["kind"] = names[static_cast<std::size_t>(gradients.kind)];
  if (gradients.seed != 0) out["seed"] = gradients.seed;
  if (gradients.samples_per_micro_batch != 1) out["samples_per_micro_batch"] = gradients.samples_per_micro_batch;
  if (!gradients.file.empty()) out["file"] = gradients.file;
  else if (gradients.values) out["micro_batches"] = values_to_json(scenario);
  if (gradients.mlp) mlp_to_json(*gradients.mlp, scenario.parameters, out);
  return out;
}

ordered_json memory_to_json(const ExpectedMemory& memory) {
  ordered_json out{{"of", memory.of}, {"space", memory.space}};
  if (!memory.phase.empty()) out["phase"] = memory.phase;
  if (memory.rank) out["rank"] = *memory.rank;
  for (auto [key, bytes] : {std::pair{"resident", memory.resident}, std::pair{"at_most_resident", memory.at_most_resident}, std::pair{"peak", memory.peak},
                            std::pair{"at_most_peak", memory.at_most_peak}})
    if (bytes) out[key] = *bytes;
  return out;
}

ordered_json expect_to_json(const Expect& expect) {
  ordered_json out;
  if (expect.accounting_only) out["accounting_only"] = true;
  else out["findings"] = ordered_json::array();
  for (const ExpectedFinding& finding : expect.findings) {
    ordered_json entry;
    entry["class"] = finding.finding;
    if (finding.contributions) entry["contributions"] = finding.contributions->text();
    if (finding.own) entry["own"] = *finding.own;
    if (finding.peer) entry["peer"] = *finding.peer;
    if (finding.lost_weight) entry["lost_weight"] = *finding.lost_weight;
    out["findings"].push_back(std::move(entry));
  }
  for (const auto& [purpose, counts] : expect.collectives) {
    if (counts.per_step) out["collectives"][purpose]["per_step"] = *counts.per_step;
    if (counts.at_most_per_step) out["collectives"][purpose]["at_most_per_step"] = *counts.at_most_per_step;
    if (counts.bytes_per_step) out["collectives"][purpose]["bytes_per_step"] = *counts.bytes_per_step;
    if (counts.at_most_bytes_per_step) out["collectives"][purpose]["at_most_bytes_per_step"] = *counts.at_most_bytes_per_step;
  }
  for (const ExpectedMemory& memory : expect.memory) out["memory"].push_back(memory_to_json(memory));
  if (!expect.not_allocated.empty()) out["not_allocated"] = expect.not_allocated;
  for (const ExpectedValues& v : expect.values) out["values"].push_back({{"event", v.event}, {"rank", v.rank}, {"buffer", v.buffer}, {"values", v.values}});
  if (expect.comparison) out["comparison"] = {{"with", expect.comparison->with}, {"applied", expect.comparison->agree ? "agree" : "differ"}};
  return out;
}

}  // namespace

ordered_json to_json(const Scenario& scenario) {
  ordered_json out;
  out["name"] = scenario.name;
  if (!scenario.note.empty()) out["note"] = scenario.note;
  if (!scenario.source.empty()) out["source"] = scenario.source;
  if (!scenario.covers.empty()) out["covers"] = scenario.covers;
  if (!scenario.twin_of.empty()) out["twin_of"] = scenario.twin_of;
  out["world_size"] = scenario.world_size;
  out["parameters"] = parameters_to_json(scenario.parameters);
  out["model_dtype"] = name_of(scenario.model_dtype);
  out["engine"] = engine_to_json(scenario.engine, scenario.parameters);
  out["gradients"] = gradients_to_json(scenario);
  if (scenario.tokens.stated()) out["tokens"] = tokens_to_json(scenario.tokens);
  if (scenario.layout) out["layout"] = layout_to_json(*scenario.layout);
  if (!scenario.groups.empty()) out["groups"] = scenario.groups;
  out["contract"] = contract_to_json(scenario.contract);
  if (scenario.allow_open) out["allow_open"] = true;
  if (scenario.after_error == AfterError::go_on) out["after_error"] = "go_on";
  out["script"] = items_to_json(scenario.script);
  out["expect"] = expect_to_json(scenario.expect);
  return out;
}

std::string serialise(const Scenario& scenario) { return to_json(scenario).dump(2) + "\n"; }

}  // namespace gradledger
