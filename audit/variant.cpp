#include "audit/variant.h"

#include <array>
#include <map>
#include <optional>
#include <string>

#include "sim/load.h"
#include "sim/scenario/rank_layout.h"

namespace gradledger::audit {
namespace {

using nlohmann::json;

// Ranks that hold parts of one model run the same micro-batches.
std::uint32_t data_place(const Setup& setup, std::uint32_t rank) {
  if (!setup.layout.is_object()) return rank;
  std::map<std::string, std::uint32_t> sizes;
  for (const auto& [name, size] : setup.layout.items())
    if (size.is_number()) sizes[name] = size;
  const RankLayout layout = RankLayout::of(setup.layout.value("order", ""), sizes, setup.ranks).value();
  return layout.place("dp", rank) * layout.size("cp") + layout.place("cp", rank);
}

// Numbers of tokens as batches have them: of each rank and micro-batch another, and the same in every run.
json uneven_tokens(const Setup& setup) {
  constexpr std::array<std::uint32_t, 10> tokens{4, 2, 8, 2, 6, 3, 5, 1, 7, 2};
  const std::uint32_t whole = setup.setting.micro_batches;
  json window = json::array();
  std::size_t behind = static_cast<std::size_t>(setup.ranks) * whole;
  for (std::uint32_t rank = 0; rank < setup.ranks; ++rank) {
    json row = json::array();
    for (std::uint32_t m = 0; m < whole; ++m) row.push_back(tokens[(data_place(setup, rank) * std::size_t{whole} + m) % tokens.size()]);
    // An epoch's tail may join a whole window.
    for (std::uint32_t m = 0; m < setup.setting.last_window; ++m) row.push_back(tokens[behind++ % tokens.size()]);
    window.push_back(std::move(row));
  }
  return {{"table", json::array({std::move(window)})}};
}

// What a loop calls the framework with. How a schedule goes is the configuration's, if the loop calls one.
void add_calls(json calls, json& config) {
  if (config.contains("schedule") && calls.contains("schedule")) calls["schedule"].update(config["schedule"]);
  config.erase("schedule");
  config.update(calls);
}

// `config`: the variant's, to which a loop adds what it calls the framework with.
std::optional<InputError> take_loop(const Setup& setup, const Variant& variant, json& out, json& config) {
  loops::LoopSetting setting = setup.setting;
  setting.packages = variant.packages;
  setting.grpo = variant.grpo;
  setting.sync_each_batch = variant.sync_each_batch;
  setting.ranks = setup.ranks;
  setting.uneven_tokens = setup.uneven_tokens;
  setting.counted = setup.framework->user_config()->counted_window(variant.config);
  if (variant.config.contains("zero_optimization")) setting.stage = variant.config["zero_optimization"].value("stage", 0u);
  setting.stages = setup.layout.is_object() ? setup.layout.value("pp", 1u) : 1;
  setting.schedule = variant.config.value("schedule", json::object());
  setting.per_token = variant.config.value(json::json_pointer("/model/calculate_per_token_loss"), false);
  if (const std::string refused = variant.loop->refuses ? variant.loop->refuses(setting) : ""; !refused.empty())
    return InputError{"--loop " + std::string(variant.loop->name), refused};
  loops::Expansion expansion = variant.loop->expand(setting);
  add_calls(expansion.config, config);
  out["script"] = std::move(expansion.script);
  if (!expansion.contract.empty()) out["contract"] = std::move(expansion.contract);
  if (!expansion.tokens.is_null()) out["tokens"] = std::move(expansion.tokens);
  else if (expansion.counts_tokens) out["tokens"] = setup.uneven_tokens ? uneven_tokens(setup) : json(1);
  return std::nullopt;
}

}  // namespace

Variant variant_of(const Setup& setup) { return {setup.config, setup.as_of, setup.loop, setup.setting.packages, setup.setting.grpo, setup.setting.sync_each_batch}; }

Result<Scenario> scenario_of(const Setup& setup, const Variant& variant) {
  json out = setup.script_of.is_object() ? setup.script_of : json::object();
  for (const char* key : {"expect", "covers", "twin_of", "model_dtype"}) out.erase(key);
  out["name"] = "audit";
  out["world_size"] = setup.ranks;
  if (!out.contains("parameters")) out["parameters"] = setup.parameters;
  if (!setup.model_dtype.empty()) out["model_dtype"] = setup.model_dtype;
  json engine = out.value("engine", json::object());
  engine["framework"] = std::string(setup.framework->id());
  engine["as_of"] = variant.as_of;
  json config = variant.config;
  if (variant.loop)
    if (auto refused = take_loop(setup, variant, out, config)) return std::move(*refused);
  engine["config"] = std::move(config);
  engine["optimizer"] = setup.optimizer;
  out["engine"] = std::move(engine);
  if (setup.groups.is_object()) out["groups"] = setup.groups;
  if (setup.layout.is_object()) out["layout"] = setup.layout;
  out["allow_open"] = true;
  auto read = read_scenario(out.dump(), ".");
  if (!read) return read;
  Scenario scenario = std::move(read).value();
  scenario.note = "Written by gradledger audit.";
  return scenario;
}

}  // namespace gradledger::audit
