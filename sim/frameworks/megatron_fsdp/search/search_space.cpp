#include "sim/frameworks/megatron_fsdp/search/search_space.h"

#include <algorithm>
#include <array>

#include "sim/base/hash.h"
#include "sim/frameworks/loop_drawing.h"
#include "sim/frameworks/megatron_fsdp/methods.h"
#include "sim/frameworks/megatron_fsdp/search/parts.h"

namespace gradledger::megatron_fsdp {
namespace {

template <Strategy strategy>
void apply(Scenario& s) {
  s.engine.framework = "megatron-fsdp";
  megatron_fsdp_config(s).zero_dp_strategy = strategy;
}

constexpr EngineTraits sharding{.reduces_to_owners = true, .reduces_every_backward = true, .accumulates_itself = true};

constexpr std::array<Variant, 2> all_variants{{
    {"megatron-fsdp", "Megatron-FSDP, gradients sharded, with weights or without", sharding, apply<Strategy::optim_grads_params>},
    {"megatron-fsdp-whole",
     "Megatron-FSDP, gradients whole on every rank, with the optimizer sharded or without",
     {.reduces_every_backward = true, .accumulates_itself = true},
     apply<Strategy::no_shard>},
}};

class MegatronFsdpTuning final : public Tuning {
 public:
  bool set_model_dtype(Scenario& s, Dtype dtype) const override { return dtype != Dtype::float16 && set_loop_dtype(s, dtype); }
  bool set_accumulation_dtype(Scenario& s, std::optional<Dtype> dtype) const override {
    megatron_fsdp_config(s).mixed_precision.main_grads_dtype = dtype;
    return true;
  }
};

class Space final : public SearchSpace {
 public:
  std::span<const Variant> variants() const override { return all_variants; }
  std::string variant_of(const Scenario& s) const override { return megatron_fsdp_config(s).shards_gradients() ? "megatron-fsdp" : "megatron-fsdp-whole"; }

  std::span<const FeatureInfo> features() const override { return megatron_fsdp::features(); }
  void draw_engine(std::span<const Variant* const> among, Draws& draws, const Swarm& swarm, Scenario& out) const override { megatron_fsdp::draw_engine(among, draws, swarm, out); }
  void draw_options(Draws& draws, const Swarm& swarm, Scenario& out) const override { megatron_fsdp::draw_options(draws, swarm, out); }
  // Gradients of outer shards are divided by nothing, one rank adds to itself what it reduced in another dtype, and optimizers step when they are made.
  void leave_out_open_defects(Scenario& s) const override {
    MegatronFsdpConfig& config = megatron_fsdp_config(s);
    config.outer_sharding = false;
    config.mixed_precision.grad_comm_dtype.reset();
    s.engine.as_of.switches["steps_when_made"] = "no";
  }
  std::unique_ptr<Calls> calls(const Scenario&) const override { return std::make_unique<LoopCalls>(false); }
  bool draw_window(const WindowSlot& slot, Draws& draws, const Swarm& swarm, Scenario& out) const override {
    megatron_fsdp::draw_window(slot, draws, swarm, out);
    return true;
  }
  // Windows of several backwards in no_sync() but for the last one, where that defers anything; else each backward synchronises by itself.
  void write_loop(const PlainLoop& loop, Scenario& out) const override {
    MegatronFsdpConfig& config = megatron_fsdp_config(out);
    PlainLoop written = loop;
    written.defers = loop.micro_batches > 1 && reduced_once(config);
    config.sync_model_each_microbatch = !written.defers;
    config.calculate_per_token_loss = false;
    write_plain_loop(written, {}, {}, out);
  }
  std::vector<OwnLetter> letters(const Scenario&) const override {
    return {{"set_model_auto_sync(T)", auto_sync_item(true)}, {"set_model_auto_sync(F)", auto_sync_item(false)}, {finish_event, finish_item()}};
  }

  std::vector<std::string> alphabet(const Scenario&) const override { return {"backward", "step", "optimizer.zero_grad", "set_model_auto_sync(T)", "set_model_auto_sync(F)"}; }
  std::vector<Simplification> simplifications() const override {
    std::vector<Simplification> out;
    add_loop_simplifications(out);
    const auto defaults = [&](auto option) { out.push_back(option_default(option)); };
    defaults(&MegatronFsdpConfig::mixed_precision);
    defaults(&MegatronFsdpConfig::outer_sharding);
    defaults(&MegatronFsdpConfig::units);
    defaults(&MegatronFsdpConfig::wrap);
    defaults(&MegatronFsdpConfig::overlap_grad_reduce);
    defaults(&MegatronFsdpConfig::calculate_per_token_loss);
    out.push_back([](Scenario& s) {
      const bool was = megatron_fsdp_config(s).mesh.has_value();
      megatron_fsdp_config(s).mesh.reset();
      if (was) s.groups.clear();
      return was;
    });
    return out;
  }

  std::uint64_t alike(const Scenario& s) const override {
    const MegatronFsdpConfig& c = megatron_fsdp_config(s);
    return hash_keys({static_cast<std::uint64_t>(c.zero_dp_strategy), c.mesh.has_value(), c.outer_sharding, c.sync_model_each_microbatch, c.mixed_precision == MixedPrecision{}});
  }

  const Tuning& tuning() const override {
    static const MegatronFsdpTuning it;
    return it;
  }
};

ScriptItem item_of(const FrameworkEvent& event, Call call, std::optional<ReductionSwitch> switches) { return event_item(event, FrameworkValue(call), switches); }

}  // namespace

ScriptItem auto_sync_item(bool value) { return item_of(own_events[0], Call{value}, ReductionSwitch{.held_back = !value}); }
ScriptItem finish_item() { return item_of(own_events[1], Call{}, std::nullopt); }

const SearchSpace& search_space() {
  static const Space it;
  return it;
}

}  // namespace gradledger::megatron_fsdp
