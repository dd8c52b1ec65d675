#include "sim/frameworks/torch/fsdp1/search/search_space.h"

#include <algorithm>
#include <array>
#include <utility>

#include "sim/base/hash.h"
#include "sim/frameworks/loop_drawing.h"
#include "sim/frameworks/torch/fsdp1/search/parts.h"
#include "sim/frameworks/torch/scaler_contract.h"

namespace gradledger::torch::flat_sharded {
namespace {

void apply(Scenario& s, Strategy strategy, bool offload) {
  s.engine.framework = "fsdp1";
  fsdp1_config(s).strategy = strategy;
  fsdp1_config(s).offload = offload;
}

constexpr EngineTraits sharded(bool offloads) { return {.reduces_to_owners = true, .reduces_every_backward = true, .accumulates_itself = true, .offloads = offloads}; }

constexpr std::array<Variant, 3> all_variants{{
    {"fsdp1", "FullyShardedDataParallel", sharded(false), [](Scenario& s) { apply(s, Strategy::full_shard, false); }},
    {"fsdp1-offload", "FullyShardedDataParallel with CPUOffload", sharded(true), [](Scenario& s) { apply(s, Strategy::full_shard, true); }},
    {"fsdp1-no-shard", "FullyShardedDataParallel with NO_SHARD", {.reduces_every_backward = true}, [](Scenario& s) { apply(s, Strategy::no_shard, false); }},
}};

class FlatShardedTuning final : public Tuning {
 public:
  bool set_model_dtype(Scenario& s, Dtype dtype) const override { return set_loop_dtype(s, dtype); }
  bool set_loss_scale(Scenario& s, const LossScalePolicy& policy) const override {
    fsdp1_config(s).grad_scaler = scaler_of(policy);
    return true;
  }
  bool set_wire_dtype(Scenario& s, std::optional<Dtype> dtype) const override {
    fsdp1_config(s).mixed_precision.reduce_dtype = dtype;
    return true;
  }
};

std::vector<Simplification> simpler() {
  std::vector<Simplification> out;
  add_loop_simplifications(out);
  const auto defaults = [&](auto option) { out.push_back(option_default(option)); };
  defaults(&Fsdp1Config::mixed_precision);
  defaults(&Fsdp1Config::units);
  out.push_back([](Scenario& s) {  // NO_SHARD stays: it decides which engine it is
    Fsdp1Config& c = fsdp1_config(s);
    if (c.strategy == Strategy::no_shard || c.strategy == Strategy::full_shard) return false;
    if (c.mesh) s.groups.clear();
    c.mesh.reset();
    c.strategy = Strategy::full_shard;
    return true;
  });
  defaults(&Fsdp1Config::wrap);
  defaults(&Fsdp1Config::use_orig_params);
  defaults(&Fsdp1Config::backward_prefetch);
  defaults(&Fsdp1Config::forward_prefetch);
  defaults(&Fsdp1Config::computes_on_cpu);
  defaults(&Fsdp1Config::calls_unused_units);
  defaults(&Fsdp1Config::plain_grad_scaler);
  out.push_back([](Scenario& s) {
    Fsdp1Config& c = fsdp1_config(s);
    c.plain_grad_scaler = false;  // says which scaler there is
    return std::exchange(c.grad_scaler, {}).has_value();
  });
  return out;
}

class Space final : public SearchSpace {
 public:
  std::span<const Variant> variants() const override { return all_variants; }
  std::string variant_of(const Scenario& s) const override {
    const Fsdp1Config& c = fsdp1_config(s);
    return c.offload ? "fsdp1-offload" : c.strategy == Strategy::no_shard ? "fsdp1-no-shard" : "fsdp1";
  }

  std::span<const FeatureInfo> features() const override { return flat_sharded::features(); }
  void draw_engine(std::span<const Variant* const> among, Draws& draws, const Swarm& swarm, Scenario& out) const override { flat_sharded::draw_engine(among, draws, swarm, out); }
  void draw_options(Draws& draws, const Swarm& swarm, Scenario& out) const override { flat_sharded::draw_options(draws, swarm, out); }
  void leave_out_open_defects(Scenario& scenario) const override { flat_sharded::leave_out_open_defects(scenario); }
  std::unique_ptr<Calls> calls(const Scenario&) const override { return std::make_unique<LoopCalls>(true); }
  bool draw_window(const WindowSlot& slot, Draws& draws, const Swarm& swarm, Scenario& out) const override {
    flat_sharded::draw_window(slot, draws, swarm, out);
    return true;
  }
  // Where micro-batches leave parameters out, all of them are in one module, which every backward uses. A flat parameter of one element is averaged
  // again by every reduction, unless it has original ones (docs/fsdp1.md).
  void write_loop(const PlainLoop& loop, Scenario& out) const override {
    Fsdp1Config& config = fsdp1_config(out);
    if (leaves_parameters_out(out)) {
      config.units.reset();
      config.wrap = Wrap::root;
    }
    config.use_orig_params |= !config.offload && std::any_of(out.parameters.begin(), out.parameters.end(), [](const Parameter& p) { return p.numel == 1; });
    PlainLoop written = loop;
    written.defers |= config.offload;
    write_plain_loop(written, {}, {}, out);
  }

  std::vector<std::string> alphabet(const Scenario&) const override { return {"backward", "step", "optimizer.zero_grad", "no_sync", "end"}; }
  std::vector<Simplification> simplifications() const override { return simpler(); }

  std::uint64_t alike(const Scenario& s) const override {
    const Fsdp1Config& c = fsdp1_config(s);
    return hash_keys({c.offload, c.strategy == Strategy::no_shard, c.hybrid(), c.use_orig_params, c.grad_scaler.has_value(), c.mixed_precision == MixedPrecision{}});
  }

  const Tuning& tuning() const override {
    static const FlatShardedTuning it;
    return it;
  }
};

}  // namespace

const SearchSpace& search_space() {
  static const Space it;
  return it;
}

}  // namespace gradledger::torch::flat_sharded
