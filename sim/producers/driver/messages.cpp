#include "sim/producers/driver/messages.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "sim/base/overloaded.h"
#include "sim/scenario/engine_json.h"

namespace gradledger::driver {
namespace {

using nlohmann::json;

json bytes_of(const std::vector<double>& values) {
  std::vector<std::uint8_t> out(values.size() * sizeof(float));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto value = static_cast<float>(values[i]);
    std::memcpy(out.data() + i * sizeof(float), &value, sizeof(float));
  }
  return json::binary(std::move(out));
}

json parameters_json(const Scenario& scenario, const GradientSource& source) {
  json out = json::array();
  for (std::uint32_t p = 0; p < scenario.parameters.size(); ++p) {
    const Parameter& parameter = scenario.parameters[p];
    json entry{{"name", parameter.name}, {"numel", parameter.numel}, {"trainable", parameter.trainable}};
    if (parameter.on_side_stream) entry["produced_on"] = "side";
    if (parameter.expert) entry["expert"] = *parameter.expert;
    if (parameter.pipeline_stage > 0) entry["pipeline_stage"] = parameter.pipeline_stage;
    if (parameter.hooked_outputs != 1) entry["hooked_outputs"] = parameter.hooked_outputs;
    if (parameter.tied_to) entry["tied_to"] = *parameter.tied_to;
    if (parameter.part) entry["part"] = {{"over", parameter.part->over}, {"number", parameter.part->number}, {"count", parameter.part->count}};
    if (!parameter.summed_over.empty()) entry["summed_over"] = parameter.summed_over;
    std::vector<double> weights(parameter.numel);
    if (!parameter.tied_to) source.initial_parameter(p, 0, weights);
    entry["weights"] = bytes_of(weights);
    out.push_back(std::move(entry));
  }
  return out;
}

// Those of the layout too: of each set of ranks a rank makes one process group.
json groups_json(const Scenario& scenario) {
  json out = scenario.groups;
  if (scenario.layout) out.update(json(scenario.layout->groups()));
  return out;
}

}  // namespace

json configure_message(const Scenario& scenario, const GradientSource& source, const RunOptions& options, std::uint64_t run, std::uint64_t seed, bool streams) {
  json engine = engine_to_json(scenario.engine, scenario.parameters);
  engine["after_error"] = scenario.after_error == AfterError::go_on ? "go_on" : "stop";
  json out{{"type", "configure"},
           {"run", run},
           {"engine", std::move(engine)},
           {"parameters", parameters_json(scenario, source)},
           {"model_dtype", name_of(scenario.model_dtype)},
           {"groups", groups_json(scenario)},
           {"linear", options.linear},
           {"observe", options.observe_events},
           {"seed", seed}};
  if (streams) out["streams"] = true;  // a driver that does not know of them is not told
  return out;
}

std::string event_name(const Event& event) {
  return std::visit(overloaded{[](const events::Forward&) { return std::string("forward"); },
                               [](const events::Backward&) { return std::string("backward"); },
                               [](const events::SetBoundary&) { return std::string("set_boundary"); },
                               [](const events::EnterNoSync&) { return std::string("enter_no_sync"); },
                               [](const events::ExitNoSync&) { return std::string("exit_no_sync"); },
                               [](const events::EnterCoalesce&) { return std::string("enter_coalesce"); },
                               [](const events::ExitCoalesce&) { return std::string("exit_coalesce"); },
                               [](const events::Step&) { return std::string("step"); },
                               [](const events::EngineZeroGrad&) { return std::string("zero_grad"); },
                               [](const events::OptimizerZeroGrad&) { return std::string("zero_grad"); },
                               [](const events::SetGradient&) { return std::string("set_gradient"); },
                               [](const events::Raise&) { return std::string("raise"); },
                               [](const events::ScaleGradients&) { return std::string("scale_gradients"); },
                               [](const events::ClipGradients&) { return std::string("clip_gradients"); },
                               [](const events::AllReduce&) { return std::string("all_reduce"); },
                               [](const events::Finalize&) { return std::string("finalize"); },
                               [](const events::Save&) { return std::string("save"); },
                               [](const events::Restore&) { return std::string("restore"); },
                               [](const events::Unscale&) { return std::string("unscale"); },
                               [](const events::OfFramework& own) { return own.name; }},
                    event.body);
}

RankScript::RankScript(const Scenario& scenario, const Timeline& timeline, std::uint32_t rank) : scenario_(scenario), timeline_(timeline), rank_(rank) {
  std::vector<std::uint32_t> forwards;  // of the window so far
  for (std::uint32_t e = 0; e < timeline.events.size(); ++e) {
    const Event& event = timeline.events[e];
    if (event.nobody || !event.runs_on(rank)) continue;
    events_.push_back(e);
    if (event.is<events::Forward>()) forwards.push_back(e);
    if (event.closes()) forwards.clear();
    const auto* backward = event.as<events::Backward>();
    if (!backward || backward->own_forward || backward->of >= forwards.size()) continue;
    forward_of_[e] = forwards[backward->of];
    backward_of_.try_emplace(forwards[backward->of], backward->ordinal);
  }
}

std::optional<std::uint32_t> RankScript::ordinal_of(std::uint32_t event) const {
  if (const auto* backward = timeline_.events[event].as<events::Backward>()) return backward->ordinal;
  const auto found = backward_of_.find(event);
  if (found == backward_of_.end()) return std::nullopt;
  return found->second;
}

std::vector<std::uint32_t> RankScript::all_uses() const {
  std::vector<std::uint32_t> out;
  for (auto p = static_cast<std::uint32_t>(scenario_.parameters.size()); p-- > 0;)
    if (const std::uint32_t owner = scenario_.parameters[p].tied_to.value_or(p); scenario_.parameters[owner].has_gradient() && timeline_.contract.holds(rank_, owner))
      out.push_back(p);
  return out;
}

json RankScript::message(std::uint32_t event, const GradientSource& source) const {
  json out{{"type", "event"}, {"number", event}, {"name", event_name(timeline_.events[event])}, {"arguments", arguments(event)}};
  const auto ordinal = ordinal_of(event);
  if (!ordinal && !timeline_.events[event].is<events::Forward>()) return out;
  out["gradients"] = gradients(ordinal, source);
  const auto* backward = timeline_.events[event].as<events::Backward>();
  for (std::uint32_t i = 1; backward && i < backward->summed; ++i) {
    const std::uint32_t of = *ordinal + i;
    out["further"].push_back(
        {{"micro_batch", timeline_.backwards[of].micro_batch[rank_]}, {"uses", timeline_.ready_order(scenario_, of, rank_)}, {"gradients", gradients(of, source)}});
  }
  return out;
}

// Of a tied parameter there is one gradient, however often it is used.
json RankScript::gradients(std::optional<std::uint32_t> ordinal, const GradientSource& source) const {
  json out = json::object();
  for (const std::uint32_t use : ordinal ? timeline_.ready_order(scenario_, *ordinal, rank_) : all_uses()) {
    const std::uint32_t p = scenario_.parameters[use].tied_to.value_or(use);
    const std::string key = std::to_string(p);
    if (out.contains(key)) continue;
    std::vector<double> values(scenario_.parameters[p].numel);
    if (ordinal) source.gradient(*ordinal, rank_, p, 0, values);
    out[key] = bytes_of(values);
  }
  return out;
}

json RankScript::arguments(std::uint32_t at) const {
  const Event& event = timeline_.events[at];
  json out = json::object();
  const auto data = [&] {
    const auto ordinal = ordinal_of(at);
    out["uses"] = ordinal ? timeline_.ready_order(scenario_, *ordinal, rank_) : all_uses();
    out["micro_batch"] = ordinal ? timeline_.backwards[*ordinal].micro_batch[rank_] : 0;
  };
  const auto group = [&](std::uint32_t over) { return timeline_.group_names.at(over); };
  std::visit(overloaded{[&](const events::Forward&) { data(); },
                        [&](const events::Backward& b) {
                          data();
                          if (const auto of = forward_of_.find(at); of != forward_of_.end()) out["of"] = of->second;
                          const std::vector<double>& factors = timeline_.backwards[b.ordinal].loss_factor;
                          out["loss_factor"] = factors.empty() ? 1.0 : factors[rank_];
                          out["scale_wrt_gas"] = b.scale_wrt_gas;
                          out["direct"] = b.direct;
                          out["past_scaler"] = b.past_scaler;
                          out["phases"] = b.phases;
                          out["summed"] = b.summed;
                          const Backward& backward = timeline_.backwards[b.ordinal];
                          if (const auto tokens = scenario_.tokens.of(backward.step, rank_, backward.micro_batch[rank_])) out["tokens"] = *tokens;
                          if (b.raises_after) out["raises_after"] = *b.raises_after;
                        },
                        [&](const events::SetBoundary& b) { out["boundary"] = b.boundary; },
                        [&](const one_of<events::EnterNoSync, events::ExitNoSync, events::EnterCoalesce, events::ExitCoalesce> auto&) {},
                        [&](const events::Step& s) { out["past_scaler"] = s.past_scaler; },
                        [&](const events::EngineZeroGrad& z) {
                          out = {{"of", "engine"}, {"set_to_none", z.set_to_none}};
                        },
                        [&](const events::OptimizerZeroGrad& z) {
                          out = {{"of", "optimizer"}, {"set_to_none", z.set_to_none}};
                        },
                        [&](const events::SetGradient& s) {
                          out = {{"parameter", s.parameter}, {"factor", s.factor}, {"local", s.local}};
                        },
                        [&](const events::Raise& r) { out["caught"] = r.caught; }, [&](const events::ScaleGradients& s) { out["by"] = s.by.at(rank_); },
                        [&](const events::ClipGradients& c) {
                          out = {{"max_norm", c.max_norm}, {"group", group(c.over)}};
                        },
                        [&](const events::AllReduce& a) {
                          out = {{"group", group(a.over)}, {"of", a.of_gradients ? "gradients" : "scalar"}, {"as", a.mean ? "mean" : "sum"}};
                        },
                        [&](const one_of<events::Finalize, events::Save, events::Restore, events::Unscale> auto&) {},
                        [&](const events::OfFramework& own) { out = json::parse(own.arguments.json_text()); }},
             event.body);
  return out;
}

}  // namespace gradledger::driver
