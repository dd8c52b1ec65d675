#include "sim/frameworks/megatron/search/search_space.h"

#include <algorithm>
#include <array>

#include "sim/base/hash.h"
#include "sim/frameworks/loop_drawing.h"
#include "sim/frameworks/megatron/events.h"
#include "sim/frameworks/megatron/search/parts.h"

namespace gradledger::megatron {
namespace {

void apply(Scenario& s, bool distributed) {
  s.engine.framework = "megatron";
  megatron_config(s).ddp.use_distributed_optimizer = distributed;
  megatron_config(s).optimizer.clip_grad = 0;
}

constexpr std::array<Variant, 2> all_variants{{
    {"megatron", "Megatron-Core, gradients all-reduced", {.accumulates_itself = true}, [](Scenario& s) { apply(s, false); }},
    {"megatron-distributed",
     "Megatron-Core with the distributed optimizer",
     {.reduces_to_owners = true, .accumulates_itself = true, .gathers_weights = true},
     [](Scenario& s) { apply(s, true); }},
}};

class MegatronTuning final : public Tuning {
 public:
  bool set_model_dtype(Scenario& s, Dtype dtype) const override {
    s.model_dtype = dtype;
    return true;
  }
  bool set_accumulation_dtype(Scenario& s, std::optional<Dtype> dtype) const override {
    megatron_config(s).ddp.grad_reduce_in_fp32 = dtype == Dtype::float32;
    return true;
  }
  bool clip(Scenario& s, double max_norm) const override {
    megatron_config(s).optimizer.clip_grad = max_norm;
    return true;
  }
  bool set_loss_scale(Scenario& s, const LossScalePolicy& policy) const override {
    OptimizerOptions& optimizer = megatron_config(s).optimizer;
    optimizer.loss_scale = policy.dynamic ? std::nullopt : std::optional(policy.initial);
    if (!policy.dynamic) return true;
    optimizer.initial_loss_scale = policy.initial;
    optimizer.loss_scale_window = policy.window;
    optimizer.hysteresis = policy.hysteresis;
    return true;
  }
  bool overlap(Scenario& s, bool whether) const override {
    megatron_config(s).ddp.overlap_grad_reduce = whether;
    return true;
  }
  bool limit_buckets(Scenario& s, std::uint64_t numel) const override {
    megatron_config(s).ddp.bucket_size = numel;
    return true;
  }
  bool tie_stages(Scenario& s) const override {
    megatron::tie_stages(s);
    return true;
  }
  bool share_sequence(Scenario& s) const override {
    megatron::share_sequence(s);
    return true;
  }
  bool divide_experts(Scenario& s) const override {
    megatron::divide_experts(s);
    return true;
  }
};

template <class Part, class Value>
Simplification part_default(Part MegatronConfig::*part, Value Part::*option) {
  return [part, option](Scenario& s) {
    const Value is = Part{}.*option;
    return std::exchange(megatron_config(s).*part.*option, is) != is;
  };
}

std::vector<Simplification> simpler() {
  std::vector<Simplification> out;
  add_loop_simplifications(out);
  const auto ddp = [&](auto option) { out.push_back(part_default(&MegatronConfig::ddp, option)); };
  ddp(&DdpOptions::num_distributed_optimizer_instances);
  ddp(&DdpOptions::overlap_param_gather);
  ddp(&DdpOptions::overlap_grad_reduce);
  ddp(&DdpOptions::average_in_collective);
  ddp(&DdpOptions::check_for_nan_in_grad);
  ddp(&DdpOptions::pad_buckets_for_high_nccl_busbw);
  ddp(&DdpOptions::bucket_size);
  ddp(&DdpOptions::grad_reduce_in_fp32);
  out.push_back(option_default(&MegatronConfig::parameters));
  out.emplace_back(without_schedule);
  out.emplace_back(without_chunks);
  out.emplace_back(fewest_micro_batches);
  out.emplace_back(without_grad_sync_func);
  out.push_back(part_default(&MegatronConfig::model, &ModelOptions::calculate_per_token_loss));
  const auto optimizer = [&](auto option) { out.push_back(part_default(&MegatronConfig::optimizer, option)); };
  optimizer(&OptimizerOptions::log_num_zeros_in_grad);
  optimizer(&OptimizerOptions::loss_scale);
  optimizer(&OptimizerOptions::loss_scale_window);
  optimizer(&OptimizerOptions::hysteresis);
  out.push_back([](Scenario& s) { return std::exchange(megatron_config(s).optimizer.clip_grad, 0.0) != 0.0; });
  out.push_back([](Scenario& s) { return !std::exchange(s.groups, {}).empty(); });
  return out;
}

class Space final : public SearchSpace {
 public:
  std::span<const Variant> variants() const override { return all_variants; }
  std::string variant_of(const Scenario& s) const override { return megatron_config(s).ddp.use_distributed_optimizer ? "megatron-distributed" : "megatron"; }

  std::span<const FeatureInfo> features() const override { return megatron::features(); }
  void draw_engine(std::span<const Variant* const> among, Draws& draws, const Swarm& swarm, Scenario& out) const override { megatron::draw_engine(among, draws, swarm, out); }
  void draw_options(Draws& draws, const Swarm& swarm, Scenario& out) const override { megatron::draw_options(draws, swarm, out); }
  // With several instances finalize_model_grads reduces again what a stage began itself. A rank whose part of a buffer is padding alone takes no step,
  // which the oracle calls a skip where steps may skip.
  void leave_out_open_defects(Scenario& s) const override {
    if (megatron_config(s).schedule && megatron_config(s).ddp.num_distributed_optimizer_instances > 1) megatron_config(s).schedule->grad_sync_func = false;
    if (s.model_dtype != Dtype::float16 || !megatron_config(s).ddp.use_distributed_optimizer) return;
    s.model_dtype = Dtype::bfloat16;
    megatron_config(s).optimizer.loss_scale.reset();
  }
  std::unique_ptr<Calls> calls(const Scenario&) const override { return std::make_unique<LoopCalls>(false); }
  bool draw_window(const WindowSlot& slot, Draws& draws, const Swarm& swarm, Scenario& out) const override {
    megatron::draw_window(slot, draws, swarm, out);
    return true;
  }
  std::vector<OwnLetter> letters(const Scenario& s) const override {
    std::vector<OwnLetter> out{{finalize_event, event_item(finalize_event)}, {start_grad_sync_event, event_item(start_grad_sync_event)}};
    if (!megatron_config(s).schedule) return out;
    ScriptItem call = loop_item(ScriptKind::repeat);
    call.items = schedule_call(s);
    out.push_back({schedule_event, std::move(call)});
    return out;
  }
  void write_loop(const PlainLoop& loop, Scenario& out) const override {
    MegatronConfig& config = megatron_config(out);
    config.schedule.reset();
    config.model.calculate_per_token_loss = false;
    PlainLoop written = loop;
    written.defers |= config.ddp.overlap_grad_reduce;
    write_plain_loop(written, {loop_item(ScriptKind::engine_zero_grad), loop_item(ScriptKind::optimizer_zero_grad)}, {event_item(finalize_event)}, out);
  }

  std::vector<std::string> alphabet(const Scenario& s) const override {
    std::vector<std::string> out{"backward", "step", "engine.zero_grad", "no_sync", "end", std::string(finalize_event)};
    if (!megatron_config(s).ddp.use_distributed_optimizer) out.emplace_back("optimizer.zero_grad");  // param.grad may be main_grad
    if (s.engine.pipeline_stages > 1 && megatron_config(s).schedule) out.emplace_back(schedule_event);
    return out;
  }
  std::vector<Simplification> simplifications() const override { return simpler(); }
  void forget_parameter(Scenario& s, const std::string& name) const override {
    MegatronConfig& config = megatron_config(s);
    config.parameters.erase(name);
    if (!config.schedule) return;
    for (std::vector<std::string>& chunk : config.schedule->model_chunks) std::erase(chunk, name);
  }

  std::uint64_t alike(const Scenario& s) const override {
    const MegatronConfig& c = megatron_config(s);
    const std::uint64_t call = !c.schedule ? 0 : 1 + c.schedule->chunks() * 2 + c.schedule->grad_sync_func;
    return hash_keys({c.ddp.use_distributed_optimizer, c.ddp.overlap_grad_reduce, c.ddp.average_in_collective, c.model.calculate_per_token_loss, s.groups.size(),
                      s.engine.pipeline_stages, s.layout ? s.layout->size("tp") * 8 + s.layout->size("ep") : 1, call});
  }

  const Tuning& tuning() const override {
    static const MegatronTuning it;
    return it;
  }
};

}  // namespace

ScriptItem event_item(std::string_view name) {
  const auto event = std::find_if(own_events.begin(), own_events.end(), [&](const FrameworkEvent& e) { return e.name == name; });
  return gradledger::event_item(*event);
}

const SearchSpace& search_space() {
  static const Space it;
  return it;
}

}  // namespace gradledger::megatron
