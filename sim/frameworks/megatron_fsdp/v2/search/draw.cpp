// Configurations and windows from a seed. What a seed means is the order of the draws: it does not change.
#include "sim/frameworks/loop_drawing.h"
#include "sim/frameworks/megatron_fsdp/v2/search/parts.h"
#include "sim/frameworks/sharded_drawing.h"

namespace gradledger::megatron_fsdp::v2 {
namespace {

constexpr Feature mixed_precision = own_feature(0), units = own_feature(1), mesh = own_feature(2), loss_weights = own_feature(3), left_out = own_feature(4);

constexpr FeatureInfo all_features[] = {
    {Feature::many_parameters, "many parameters"},
    {Feature::frozen, "frozen parameters"},
    {Feature::sixteen_bits, "16 bits"},
    {mixed_precision, "mixed precision"},
    {units, "units"},
    {mesh, "mesh of two dimensions"},
    {Feature::adam, "Adam"},
    {loss_weights, "weights of the loss"},
    {Feature::blocks, "microbatch(is_last=False)"},
    {left_out, "parameters left out", false},
    {Feature::zero_grads, "zero_grad"},
    {Feature::some_ranks, "events of some ranks", false},
    {Feature::double_steps, "double steps", false},
    {Feature::windows, "several windows"},
};

class Window {
 public:
  Window(const WindowSlot& slot, Draws& draws, const Swarm& swarm, Scenario& out) : draws_(draws), window_(slot, draws, swarm, out, false) {
    zero_grad_ = draws.one_in(3) ? ScriptKind::engine_zero_grad : ScriptKind::optimizer_zero_grad;
    leaves_out_ = !slot.as_documented && leaves_parameters_out(out) && window_.takes(left_out);
  }

  void draw() {
    window_.clear(zero_grad_);
    const bool marks = window_.micro_batches() > 1 && window_.takes(Feature::blocks);
    for (std::uint32_t m = 0; m < window_.micro_batches(); ++m) {
      if (marks && (!window_.last(m) || window_.strays(Feature::blocks))) window_.in_no_sync([&] { window_.micro_batch(false, leaves_out_, false); });
      else window_.micro_batch(false, leaves_out_, false);
      window_.detour(zero_grad_);
    }
    window_.step();
  }

 private:
  Draws& draws_;
  LoopWindow window_;
  ScriptKind zero_grad_;
  bool leaves_out_ = false;
};

}  // namespace

std::span<const FeatureInfo> features() { return all_features; }

void draw_engine(std::span<const Variant* const> among, Draws& draws, const Swarm& swarm, Scenario& out) {
  if (swarm.often(Feature::sixteen_bits, draws)) out.model_dtype = Dtype::bfloat16;
  among[draws.below(static_cast<std::uint32_t>(among.size()))]->apply(out);
  if (!swarm.often(mixed_precision, draws)) return;
  MixedPrecision& policy = v2_config(out).mixed_precision;
  policy.main_grads_dtype = draws.one_in(6) ? Dtype::bfloat16 : Dtype::float32;
  if (draws.one_in(3)) policy.grad_comm_dtype = draws.one_in(2) ? Dtype::bfloat16 : Dtype::float32;
}

void draw_options(Draws& draws, const Swarm& swarm, Scenario& out) {
  V2Config& config = v2_config(out);
  keep_one_used(out);
  if (swarm.takes(units, draws)) config.units = draw_units(draws, out, nullptr);
  if (config.units && config.units->empty()) config.units.reset();
  if (!config.units && draws.one_in(4)) config.wrap = Wrap::root;
  config.calls_unused_units = draws.one_in(3);
  if (out.world_size > 1 && swarm.takes(mesh, draws)) config.mesh = draw_mesh(draws, 1, out);
  draw_loop_optimizer(draws, swarm, out);
  if (swarm.takes(loss_weights, draws)) draw_loss_weights(draws, out);
}

void draw_window(const WindowSlot& slot, Draws& draws, const Swarm& swarm, Scenario& out) { Window(slot, draws, swarm, out).draw(); }

}  // namespace gradledger::megatron_fsdp::v2
