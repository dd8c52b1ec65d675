#include "conformance/torch/units.h"

#include "conformance/torch/wrapper.h"
#include "sim/base/limits.h"

namespace gradledger::conform::torch {

using nlohmann::json;

std::vector<std::uint32_t> number_of_units(const Run& run) {
  const std::size_t count = run.in_units.size();
  std::vector<std::uint32_t> group(count), out(count, not_wrapped);
  for (std::uint32_t u = 0; u < count; ++u) group[u] = u;
  const auto unit = [&](const Field& field) { return field.count(0, static_cast<std::uint32_t>(count - 1)); };
  if (run.config.contains("groups"))
    for (const Field& units : Field(run.config["groups"], "/spec/config/groups").entries(count)) {
      for (std::size_t i = 0; i < units.json().size(); ++i) {
        if (i > 0 && unit(units.at(i)) != unit(units.at(i - 1)) + 1) throw Inexpressible{"a group of units that do not follow each other"};
        group[unit(units.at(i))] = unit(units.at(0));
      }
    }
  std::vector<bool> wrapped(count, true);
  if (run.config.contains("unwrapped"))
    for (const Field& u : Field(run.config["unwrapped"], "/spec/config/unwrapped").entries(count)) wrapped[unit(u)] = false;
  std::uint32_t next = 0;
  for (std::uint32_t u = 0; u < count; ++u)
    if (wrapped[u]) out[u] = group[u] < u ? out[group[u]] : next++;
  return out;
}

Units units_of(const Run& run) {
  Units out;
  const std::vector<std::uint32_t> number = number_of_units(run);
  std::uint32_t p = run.in_root;
  for (std::size_t u = 0; u < run.in_units.size(); ++u)
    for (std::uint32_t i = 0; i < run.in_units[u]; ++i, ++p) {
      if (number[u] == not_wrapped) {
        out.nested.push_back(parameter_name(p));
        continue;
      }
      while (out.wrapped.size() <= number[u]) out.wrapped.push_back(json::array());
      out.wrapped[number[u]].push_back(parameter_name(p));
    }
  return out;
}

void take_mesh(json& config, const Run& run, Scenario& scenario) {
  if (!config.contains("mesh")) return;
  const Field mesh(config["mesh"], "/spec/config/mesh");
  const std::uint32_t replicas = mesh.at(0).count(1, run.world), shards = mesh.at(1).count(1, run.world);
  if (replicas * shards != run.world) mesh.fail("is no mesh of all ranks");
  scenario.groups["shard"].resize(replicas);
  scenario.groups["replicate"].resize(shards);
  for (std::uint32_t r = 0; r < run.world; ++r) {
    scenario.groups["shard"][r / shards].push_back(r);
    scenario.groups["replicate"][r % shards].push_back(r);
  }
  config["mesh"] = {"replicate", "shard"};
}

Field last_of(const Field& operation) {
  operation.at(0);
  return operation.at(operation.json().size() - 1);
}

bool calls_unused(const Run& run) {
  bool calls = false, leaves_out = false;
  for (const Field& op : Field(run.operations, "/spec/ops").entries(limits::events_max)) {
    const Field options = last_of(op);
    if (!options.has("use")) continue;
    const bool called = options.has("call_unused") && options.at("call_unused").flag();
    calls |= called;
    leaves_out |= !called;
  }
  if (calls && leaves_out) throw Inexpressible{"units that are called without use in some forwards, and left out in others"};
  return calls;
}

}  // namespace gradledger::conform::torch
