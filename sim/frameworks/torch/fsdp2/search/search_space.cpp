#include "sim/frameworks/torch/fsdp2/search/search_space.h"

#include <algorithm>
#include <array>
#include <utility>

#include "sim/base/hash.h"
#include "sim/frameworks/loop_drawing.h"
#include "sim/frameworks/torch/fsdp2/search/parts.h"
#include "sim/frameworks/torch/scaler_contract.h"

namespace gradledger::torch::fully_shard {
namespace {

void apply(Scenario& s, bool offload) {
  s.engine.framework = "fsdp2";
  fsdp2_config(s).offload = offload;
}

constexpr EngineTraits traits(bool offloads) { return {.reduces_to_owners = true, .reduces_every_backward = true, .accumulates_itself = true, .offloads = offloads}; }

constexpr std::array<Variant, 2> all_variants{{
    {"fsdp2", "fully_shard", traits(false), [](Scenario& s) { apply(s, false); }},
    {"fsdp2-offload", "fully_shard with CPUOffloadPolicy", traits(true), [](Scenario& s) { apply(s, true); }},
}};

class FullyShardTuning final : public Tuning {
 public:
  bool set_model_dtype(Scenario& s, Dtype dtype) const override { return set_loop_dtype(s, dtype); }
  bool set_loss_scale(Scenario& s, const LossScalePolicy& policy) const override {
    fsdp2_config(s).grad_scaler = scaler_of(policy);
    return true;
  }
  bool set_wire_dtype(Scenario& s, std::optional<Dtype> dtype) const override {
    fsdp2_config(s).mixed_precision.reduce_dtype = dtype;
    return true;
  }
};

class Space final : public SearchSpace {
 public:
  std::span<const Variant> variants() const override { return all_variants; }
  std::string variant_of(const Scenario& s) const override { return fsdp2_config(s).offload ? "fsdp2-offload" : "fsdp2"; }

  std::span<const FeatureInfo> features() const override { return fully_shard::features(); }
  void draw_engine(std::span<const Variant* const> among, Draws& draws, const Swarm& swarm, Scenario& out) const override { fully_shard::draw_engine(among, draws, swarm, out); }
  void draw_options(Draws& draws, const Swarm& swarm, Scenario& out) const override { fully_shard::draw_options(draws, swarm, out); }
  void leave_out_open_defects(Scenario& scenario) const override { fully_shard::leave_out_open_defects(scenario); }
  std::unique_ptr<Calls> calls(const Scenario&) const override { return std::make_unique<LoopCalls>(true); }
  bool draw_window(const WindowSlot& slot, Draws& draws, const Swarm& swarm, Scenario& out) const override {
    fully_shard::draw_window(slot, draws, swarm, out);
    return true;
  }
  void write_loop(const PlainLoop& loop, Scenario& out) const override {
    const bool frozen = std::any_of(out.parameters.begin(), out.parameters.end(), [](const Parameter& p) { return !p.trainable; });
    fsdp2_config(out).reduce_scatter_unused_params = leaves_parameters_out(out);
    fsdp2_config(out).calls_unused_units = leaves_parameters_out(out) || frozen;  // a module without gradients is called all the same
    fsdp2_config(out).gradient_divide_factor.reset();
    write_plain_loop(loop, {}, {}, out);
  }
  std::vector<OwnLetter> letters(const Scenario&) const override {
    return {{"set_requires_gradient_sync(T)", call_item(Method::set_requires_gradient_sync, 1)},
            {"set_requires_gradient_sync(F)", call_item(Method::set_requires_gradient_sync, 0)},
            {"set_is_last_backward(T)", call_item(Method::set_is_last_backward, 1)},
            {"set_is_last_backward(F)", call_item(Method::set_is_last_backward, 0)},
            {"reset_iter_state", call_item(Method::reset_iter_state, 0)},
            {"set_manual_backward_finalization(T)", call_item(Method::set_manual_backward_finalization, 1)},
            {"set_manual_backward_finalization(F)", call_item(Method::set_manual_backward_finalization, 0)},
            {"finalize_backward", call_item(Method::finalize_backward, 0)},
            {"finalize_backward(async)", call_item(Method::finalize_backward, 1)},
            {"wait_for_gradient_reduction", call_item(Method::wait_for_gradient_reduction, 0)}};
  }

  bool share(Scenario& s, std::uint32_t ranks) const override { return share_small_world(s, ranks); }
  std::vector<std::string> alphabet(const Scenario&) const override {
    return {"backward", "step", "optimizer.zero_grad", "set_requires_gradient_sync(T)", "set_requires_gradient_sync(F)"};
  }
  std::vector<Simplification> simplifications() const override { return fully_shard::simplifications(); }

  std::uint64_t alike(const Scenario& s) const override {
    const Fsdp2Config& c = fsdp2_config(s);
    return hash_keys({c.offload, c.mesh.has_value(), c.grad_scaler.has_value(), c.mixed_precision == MixedPrecision{}});
  }

  const Tuning& tuning() const override { return fully_shard::tuning(); }
};

}  // namespace

ScriptItem call_item(Method method, double value) {
  Call call;
  call.method = method;
  call.value = value;
  call.recurse = recurses(method);
  return event_item(call_events()[static_cast<std::size_t>(method)], FrameworkValue(call), switches_reductions(call));
}

std::vector<Simplification> simplifications() {
  std::vector<Simplification> out;
  add_loop_simplifications(out);
  const auto defaults = [&](auto option) { out.push_back(option_default(option)); };
  defaults(&Fsdp2Config::mixed_precision);
  out.push_back([](Scenario& s) { return !std::exchange(fsdp2_config(s).mixed_precision.param_dtype_override_fn, {}).empty(); });
  out.push_back([](Scenario& s) {
    Fsdp2Config& c = fsdp2_config(s);
    const bool was = c.units || !c.nested.empty();
    c.units.reset();
    c.nested.clear();
    return was;
  });
  out.push_back([](Scenario& s) {
    const bool was = fsdp2_config(s).mesh.has_value();
    fsdp2_config(s).mesh.reset();
    if (was) s.groups.clear();
    return was;
  });
  defaults(&Fsdp2Config::wrap);
  defaults(&Fsdp2Config::rows);
  defaults(&Fsdp2Config::gradient_divide_factor);
  defaults(&Fsdp2Config::force_sum_reduction_for_comms);
  defaults(&Fsdp2Config::reduce_scatter_unused_params);
  defaults(&Fsdp2Config::calls_unused_units);
  defaults(&Fsdp2Config::input_requires_grad);
  defaults(&Fsdp2Config::root_parameters_last);
  defaults(&Fsdp2Config::reshard_after_forward);
  defaults(&Fsdp2Config::grad_scaler);
  defaults(&Fsdp2Config::plain);
  return out;
}

const Tuning& tuning() {
  static const FullyShardTuning it;
  return it;
}

const SearchSpace& search_space() {
  static const Space it;
  return it;
}

}  // namespace gradledger::torch::fully_shard
