#include "audit/variant.h"

#include <array>

#include "sim/load.h"

namespace gradledger::audit {
namespace {

using nlohmann::json;

// Numbers of tokens as batches have them: of each rank and micro-batch another, and the same in every run.
json uneven_tokens(const Setup& setup) {
  constexpr std::array<std::uint32_t, 10> tokens{4, 2, 8, 2, 6, 3, 5, 1, 7, 2};
  json window = json::array();
  std::size_t next = 0;
  for (std::uint32_t rank = 0; rank < setup.ranks; ++rank) {
    json row = json::array();
    for (std::uint32_t m = 0; m < setup.setting.micro_batches; ++m) row.push_back(tokens[next++ % tokens.size()]);
    window.push_back(std::move(row));
  }
  return {{"table", json::array({std::move(window)})}};
}

void take_loop(const Setup& setup, const Variant& variant, json& out) {
  LoopSetting setting = setup.setting;
  setting.packages = variant.packages;
  setting.counted = setup.framework->user_config()->counted_window(variant.config);
  if (variant.config.contains("zero_optimization")) setting.stage = variant.config["zero_optimization"].value("stage", 0u);
  Expansion expansion = variant.loop->expand(setting);
  out["script"] = std::move(expansion.script);
  if (!expansion.contract.empty()) out["contract"] = std::move(expansion.contract);
  if (expansion.counts_tokens) out["tokens"] = setup.uneven_tokens ? uneven_tokens(setup) : json(1);
}

}  // namespace

Variant variant_of(const Setup& setup) { return {setup.config, setup.as_of, setup.loop, setup.setting.packages}; }

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
  engine["config"] = variant.config;
  engine["optimizer"] = setup.optimizer;
  out["engine"] = std::move(engine);
  if (variant.loop) take_loop(setup, variant, out);
  out["allow_open"] = true;
  auto read = read_scenario(out.dump(), ".");
  if (!read) return read;
  Scenario scenario = std::move(read).value();
  scenario.note = "Written by gradledger audit.";
  return scenario;
}

}  // namespace gradledger::audit
