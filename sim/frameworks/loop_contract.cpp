#include "sim/frameworks/loop_contract.h"

#include <algorithm>

#include "sim/scenario/layout.h"
#include "sim/scenario/script.h"

namespace gradledger {
namespace {

// Whether the script or the contract weighs contributions by more than one divisor.
bool states_weights(const Scenario& s, bool windows_are_stated) {
  const auto any = [](const auto& self, const std::vector<ScriptItem>& items) -> bool {
    return std::any_of(items.begin(), items.end(), [&](const ScriptItem& item) {
      return !item.weight.empty() || item.kind == ScriptKind::scale_gradients || item.kind == ScriptKind::clip || item.kind == ScriptKind::all_reduce || self(self, item.items);
    });
  };
  const bool in_a_group = s.contract.average_over != "world" && s.contract.average_over != "none";
  return (s.contract.window == Window::marked && !windows_are_stated) || s.contract.normaliser > Normaliser::number || in_a_group || any(any, s.script);
}

// None of one that nobody named: the timeline refuses it.
std::vector<std::uint32_t> average_groups(const std::string& over, const Groups& groups) {
  if (over == "world" || !groups.contains(over)) return {};
  std::vector<std::uint32_t> out(groups.world_size());
  for (std::uint32_t r = 0; r < out.size(); ++r) out[r] = groups.of(over, r).front();
  return out;
}

}  // namespace

Contract loop_contract(const Scenario& s, bool windows_are_stated) {
  Contract out;
  out.stated = s.contract;
  out.own_weights = states_weights(s, windows_are_stated);
  out.groups = named_groups(s);
  // The loss is the loop's: nothing divides by the number of micro-batches.
  out.divisor = s.contract.normaliser == Normaliser::number && !out.own_weights ? s.contract.divide_by : Rational(1);
  out.average_divisor = s.contract.average_over == "none" && !out.own_weights ? Rational(1) : Rational(s.world_size);
  out.average_group = average_groups(s.contract.average_over, out.groups);
  out.boundary = {windows_are_stated ? 0u : 1u, false, false, "step()"};
  out.replicates_reduced = true;
  out.reduces_every_backward = true;
  out.mixes_own_and_averaged = true;
  out.steps_own_copies = true;
  out.accumulation = s.model_dtype;
  out.steps_in_model_dtype = true;
  out.wire = s.model_dtype;
  if (s.engine.param_groups.empty()) out.optimizers = {s.engine.optimizer};
  else
    for (std::uint32_t p = 0; p < s.parameters.size(); ++p) out.optimizers.push_back(s.engine.optimizer_of(p));
  return out;
}

std::vector<std::vector<std::uint32_t>> holders_by(const Scenario& s, const std::function<bool(std::uint32_t rank, std::uint32_t parameter)>& has) {
  std::vector<std::vector<std::uint32_t>> out(s.parameters.size());
  bool all = true;
  for (std::uint32_t p = 0; p < s.parameters.size(); ++p)
    for (std::uint32_t r = 0; r < s.world_size; ++r) {
      if (has(r, p)) out[p].push_back(r);
      else all = false;
    }
  if (all) out.clear();
  return out;
}

void lay_out(const Scenario& s, Contract& out) {
  const std::string over = averaging_group(s);
  if (s.contract.average_over != "none" || out.own_weights) out.average_divisor = Rational(static_cast<std::int64_t>(out.groups.of(over, 0).size()));
  if (s.contract.average_over == "world" && out.own_weights) out.average_group = average_groups(over, out.groups);
  out.holders = holders_by(s, [&](std::uint32_t r, std::uint32_t p) { return holds(s, r, p); });
  share_gradients(s, out.groups, out);
}

}  // namespace gradledger
