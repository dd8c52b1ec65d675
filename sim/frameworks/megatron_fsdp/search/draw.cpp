// Configurations and windows from a seed. What a seed means is the order of the draws: it does not change.
#include "sim/frameworks/loop_drawing.h"
#include "sim/frameworks/megatron_fsdp/search/parts.h"
#include "sim/frameworks/sharded_drawing.h"

namespace gradledger::megatron_fsdp {
namespace {

constexpr Feature mixed_precision = own_feature(0), units = own_feature(1), mesh = own_feature(2), outer_shards = own_feature(3), auto_sync = own_feature(4),
                  finishes = own_feature(5), loss_weights = own_feature(6);

constexpr FeatureInfo all[] = {
    {Feature::many_parameters, "many parameters"},
    {Feature::frozen, "frozen parameters"},
    {Feature::sixteen_bits, "16 bits"},
    {mixed_precision, "mixed precision"},
    {units, "units"},
    {mesh, "mesh of two dimensions"},
    {outer_shards, "outer_dp_sharding_strategy", false},
    {Feature::adam, "Adam"},
    {loss_weights, "weights of the loss"},
    {Feature::blocks, "no_sync"},
    {auto_sync, "set_model_auto_sync"},
    {finishes, "finish_grad_sync"},
    {Feature::zero_grads, "zero_grad"},
    {Feature::some_ranks, "events of some ranks", false},
    {Feature::double_steps, "double steps", false},
    {Feature::windows, "several windows"},
};

class Window {
 public:
  Window(const WindowSlot& slot, Draws& draws, const Swarm& swarm, Scenario& out) : config_(megatron_fsdp_config(out)), draws_(draws), window_(slot, draws, swarm, out, false) {
    // The flag of no_sync() is set by a first one: a window of one backward has none.
    if (slot.first) config_.sync_model_each_microbatch = !(swarm.on(Feature::blocks) && window_.micro_batches() > 1);
    zero_grad_ = draws.one_in(3) ? ScriptKind::engine_zero_grad : ScriptKind::optimizer_zero_grad;
  }

  void draw() {
    window_.clear(zero_grad_);
    const bool several = window_.micro_batches() > 1, in_blocks = !config_.sync_model_each_microbatch;
    const bool defers = several && (reduced_once(config_) || !draws_.one_in(4)) && !window_.strays(auto_sync);
    if (defers && !in_blocks) window_.add(auto_sync_item(false));
    for (std::uint32_t m = 0; m < window_.micro_batches(); ++m) {
      if (window_.last(m) && defers && !in_blocks && !window_.strays(auto_sync)) window_.add(auto_sync_item(true));
      if (in_blocks && defers && (!window_.last(m) || window_.strays(Feature::blocks))) window_.in_no_sync([&] { window_.micro_batch(false, false, false); });
      else window_.micro_batch(false, false, false);
      window_.detour(zero_grad_);
    }
    if (window_.takes(finishes)) window_.add(finish_item());
    window_.step();
  }

 private:
  MegatronFsdpConfig& config_;
  Draws& draws_;
  LoopWindow window_;
  ScriptKind zero_grad_;
};

}  // namespace

std::span<const FeatureInfo> features() { return all; }

void draw_engine(std::span<const Variant* const> among, Draws& draws, const Swarm& swarm, Scenario& out) {
  if (swarm.often(Feature::sixteen_bits, draws)) out.model_dtype = Dtype::bfloat16;
  among[draws.below(static_cast<std::uint32_t>(among.size()))]->apply(out);
  MegatronFsdpConfig& config = megatron_fsdp_config(out);
  if (!swarm.often(mixed_precision, draws)) return;
  config.mixed_precision.main_grads_dtype = Dtype::float32;
  if (draws.one_in(3)) config.mixed_precision.grad_comm_dtype = Dtype::bfloat16;
}

void draw_options(Draws& draws, const Swarm& swarm, Scenario& out) {
  MegatronFsdpConfig& config = megatron_fsdp_config(out);
  keep_one_used(out);
  if (config.shards_gradients() && draws.one_in(3)) config.zero_dp_strategy = Strategy::optim_grads;
  if (!config.shards_gradients() && draws.one_in(2)) config.zero_dp_strategy = Strategy::optim;
  if (swarm.takes(units, draws)) config.units = draw_units(draws, out, nullptr);
  if (config.units && config.units->empty()) config.units.reset();
  // In a shard of one rank every backward divides those before it.
  if (config.zero_dp_strategy != Strategy::no_shard && out.world_size > 1 && swarm.takes(mesh, draws)) config.mesh = draw_mesh(draws, 2, out);
  if (config.mesh && config.zero_dp_strategy == Strategy::optim_grads_params && swarm.takes(outer_shards, draws)) config.outer_sharding = true;
  draw_loop_optimizer(draws, swarm, out);
  if (swarm.takes(loss_weights, draws)) draw_loss_weights(draws, out);
}

void draw_window(const WindowSlot& slot, Draws& draws, const Swarm& swarm, Scenario& out) { Window(slot, draws, swarm, out).draw(); }

}  // namespace gradledger::megatron_fsdp
