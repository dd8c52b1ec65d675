#include "tests/frameworks/toy/framework.h"

#include <algorithm>
#include <array>
#include <string>

#include <nlohmann/json.hpp>

#include "sim/scenario/layout.h"
#include "sim/scenario/script.h"
#include "sim/scenario/script_pointer.h"
#include "tests/frameworks/toy/engine.h"

namespace gradledger::toy {
namespace {

using nlohmann::json;

struct ToyConfig {
  std::string json_text() const { return "{}"; }
  bool operator==(const ToyConfig&) const = default;
};

constexpr UseRule flush_before_step{"flush-before-step", "step() applies what was flushed, and forgets the rest."};

// It takes backwards, flushes and steps.
std::optional<InputError> refused(const std::vector<ScriptItem>& items, const std::string& where) {
  for (std::size_t i = 0; i < items.size(); ++i) {
    const std::string here = where + "/" + std::to_string(i);
    const ScriptKind kind = items[i].kind;
    if (kind == ScriptKind::repeat) {
      if (auto error = refused(items[i].items, pointer_of_items(items[i], here))) return error;
    } else if (kind != ScriptKind::backward && kind != ScriptKind::of_framework && kind != ScriptKind::step) {
      return InputError{here, "is no event of the toy; expected backward, flush, step and repeat"};
    }
  }
  return std::nullopt;
}

class Toy final : public Framework {
 public:
  std::string_view id() const override { return "toy"; }
  std::string_view title() const override { return "Toy"; }

  Result<FrameworkConfig> config_from_json(const json& config, std::uint32_t, const std::string& where) const override {
    if (!config.empty()) return InputError{where + "/" + config.begin().key(), "is no option of the toy, which has none"};
    return FrameworkConfig(ToyConfig{});
  }
  Result<Dtype> model_dtype(FrameworkConfig&, const json&, std::optional<Dtype> stated) const override {
    if (stated.value_or(Dtype::float32) != Dtype::float32) return InputError{"/model_dtype", "is not fp32, which the toy's models have"};
    return Dtype::float32;
  }

  std::span<const FrameworkEvent> events() const override {
    static constexpr std::array own{FrameworkEvent{"flush", "averages over ranks what they have, and adds it to what step() applies", true}};
    return own;
  }
  Result<FrameworkValue> event_from_json(const FrameworkEvent&, const json& arguments, const std::string& where) const override {
    Flush out;
    for (const auto& [key, value] : arguments.items()) {
      if (key != "divide") return InputError{where + "/" + key, "is no key of flush; expected divide"};
      if (value != "first" && value != "last") return InputError{where + "/divide", "is " + value.dump() + "; expected \"first\" or \"last\""};
      out.divides_first = value == "first";
    }
    return FrameworkValue(out);
  }

  std::optional<InputError> as_of_problem(const AsOf& as_of) const override {
    if (as_of.switches.empty() && as_of.base == "head") return std::nullopt;
    return InputError{"/engine/as_of", "names a state of the toy's code, of which there is one: expected \"head\""};
  }
  Result<Contract> contract(const Scenario& scenario) const override {
    if (auto error = as_of_problem(scenario.engine.as_of)) return *error;
    Contract out;
    out.stated = scenario.contract;
    out.groups = named_groups(scenario);
    out.average_divisor = Rational(scenario.world_size);
    out.boundary = {1, false, false, "step()"};
    out.optimizers = {scenario.engine.optimizer};
    return out;
  }

  std::span<const EngineInfo> engines() const override {
    static constexpr std::array infos{EngineInfo{"ToyEngine", "framework toy", "param.grad until flush(), then averages of them"}};
    return infos;
  }
  Result<const EngineInfo*> select(const Scenario& scenario) const override {
    if (auto error = refused(scenario.script, "/script")) return *error;
    return &engines().front();
  }
  EngineFactory factory(const Scenario&) const override {
    return [](const EngineContext& context) { return std::make_unique<ToyEngine>(context); };
  }

  std::span<const BufferFamily> buffer_families() const override {
    using enum BufferPurpose;
    static constexpr std::array families{BufferFamily{"*", weights, "the model", "its weights"}, BufferFamily{"*.grad", gradients, "autograd", "what was not flushed"},
                                         BufferFamily{"*.averaged", accumulators, "flush()", "averages over ranks"}};
    return families;
  }
  std::uint64_t rank_bytes(const Scenario& scenario) const override { return scenario.numel() * 5 * size_of(Dtype::float32); }
  std::string described(const Scenario&) const override { return "no options"; }

  std::span<const UseRule> use_rules() const override { return {&flush_before_step, 1}; }
  UseReport use_of(const Scenario&, const Timeline& timeline) const override {
    UseReport out;
    bool open = false;
    for (std::uint32_t e = 0; e < timeline.events.size(); ++e) {
      const Event& event = timeline.events[e];
      if (event.is<gradledger::events::Step>() && open) out.misuses.push_back({&flush_before_step, e, event.step});
      open = event.is<gradledger::events::Backward>() || (open && !event.is<gradledger::events::OfFramework>() && !event.updates());
    }
    out.state = open;
    return out;
  }
};

}  // namespace

const Framework* framework() {
  static const Toy it;
  return &it;
}

}  // namespace gradledger::toy
