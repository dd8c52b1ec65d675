// Configurations from a seed. What a seed means is the order of the draws: it does not change.
#include <algorithm>
#include <array>

#include "sim/frameworks/deepspeed/engines.h"
#include "sim/frameworks/deepspeed/search/parts.h"
#include "sim/frameworks/deepspeed/settings.h"
#include "sim/frameworks/loop_drawing.h"

namespace gradledger::deepspeed {
namespace {

constexpr Feature wide_accumulation = own_feature(0), wire_dtype = own_feature(1), small_buckets = own_feature(2), no_contiguous = own_feature(3),
                  no_reduce_scatter = own_feature(4), overlap = own_feature(5), predivide = own_feature(6), summed = own_feature(7), pinned = own_feature(8),
                  sub_groups = own_feature(9), unmanaged = own_feature(10), immediate_update = own_feature(11);

constexpr FeatureInfo all[] = {
    {Feature::many_parameters, "many parameters"},
    {Feature::frozen, "frozen parameters", false},
    {Feature::tied, "tied parameters", false},
    {Feature::side_stream, "side stream", false},
    {Feature::hooked_outputs, "hooked outputs", false},
    {Feature::used_by_some, "parameters of some micro-batches", false},
    {Feature::expert_parallel, "expert parallel", false},
    {Feature::sequence_parallel, "sequence parallel", false},
    {Feature::pipeline, "pipeline", false},
    {Feature::sixteen_bits, "16 bits"},
    {wide_accumulation, "wide accumulation"},
    {wire_dtype, "dtype on the wire", false},
    {Feature::clipping, "clipping"},
    {Feature::adam, "Adam"},
    {Feature::groups, "parameter groups"},
    {small_buckets, "small buckets"},
    {no_contiguous, "no contiguous gradients"},
    {no_reduce_scatter, "no reduce-scatter"},
    {overlap, "overlap"},
    {predivide, "predivide", false},
    {summed, "sum", false},
    {pinned, "pinned memory"},
    {sub_groups, "sub-groups"},
    {unmanaged, "unmanaged accumulation", false},
    {immediate_update, "immediate update"},
    {Feature::boundary_calls, "boundary calls"},
    {Feature::counted_windows, "counted windows"},
    {Feature::bare_windows, "bare windows"},
    {Feature::blocks, "no_sync and coalesce", false},
    {Feature::zero_grads, "zero_grad", false},
    {Feature::own_forwards, "explicit forwards", false},
    {Feature::direct, "direct backward", false},
    {Feature::phases, "phases", false},
    {Feature::uses, "uses", false},
    {Feature::order, "order", false},
    {Feature::unscaled, "unscaled loss", false},
    {Feature::set_gradient, "set_gradient", false},
    {Feature::overflow, "overflow", false},
    {Feature::some_ranks, "events of some ranks", false},
    {Feature::raises, "raise", false},
    {Feature::double_steps, "double steps", false},
    {Feature::windows, "several windows"},
};

class Options {
 public:
  Options(Draws& draws, const Swarm& swarm, Scenario& out) : draws_(draws), swarm_(swarm), out_(out), config_(deepspeed_config(out)) {}

  void engine(std::span<const Variant* const> among) {
    if (often(Feature::sixteen_bits)) set_model_dtype(out_, draws_.of({Dtype::bfloat16, Dtype::bfloat16, Dtype::float16}));
    if (config_.fp16.enabled) loss_scale();
    if (often(wide_accumulation)) config_.grad_accum_dtype = draws_.one_in(4) ? out_.model_dtype : Dtype::float32;
    among[draws_.below(static_cast<std::uint32_t>(among.size()))]->apply(out_);
    if (takes(immediate_update)) config_.bf16.immediate_grad_update = config_.bf16.enabled;
  }

  void rest() {
    if (config_.zero.stage > 0) partitions();
    reduction();
    step();
    if (out_.engine.optimizer.type == OptimizerType::muon) suit_muon();
  }

 private:
  bool takes(Feature feature) const { return swarm_.takes(feature, draws_); }
  bool often(Feature feature) const { return swarm_.often(feature, draws_); }

  void loss_scale() {
    Fp16Config& fp16 = config_.fp16;
    if (draws_.one_in(2)) fp16.loss_scale = draws_.of({1.0, 8.0, 1024.0});
    else fp16.initial_scale_power = draws_.of({2u, 8u});
    if (draws_.one_in(4)) fp16.loss_scale_window = draws_.of({1u, 2u});
    if (draws_.one_in(4)) fp16.hysteresis = 1;
    if (Draws aside = set_apart(draws_); aside.one_in(8)) fp16 = {.enabled = true};  // as most loops have it
  }

  void partitions() {
    ZeroConfig& zero = config_.zero;
    if (takes(small_buckets)) zero.reduce_bucket_size = draws_.of({8u, 16u, 24u, 40u});
    if (takes(no_contiguous)) zero.contiguous_gradients = false;
    if (takes(no_reduce_scatter)) zero.reduce_scatter = false;
    if (draws_.one_in(8)) zero.use_multi_rank_bucket_allreduce = false;
    if (takes(overlap)) zero.overlap_comm = true;
    else if (zero.stage == 3 && draws_.one_in(2)) zero.overlap_comm = false;
    if (draws_.one_in(12)) zero.round_robin_gradients = true;
    if (zero.stage == 3 && takes(sub_groups)) zero.sub_group_size = draws_.of({4u, 16u});
    if (zero.stage == 3 && draws_.one_in(12)) zero.offload_param = OffloadDevice::cpu;
    if (config_.offloads_optimizer() && takes(pinned)) zero.offload_pin_memory = true;
  }

  void reduction() {
    if (often(wire_dtype)) config_.communication_data_type = draws_.of({Dtype::float32, Dtype::bfloat16});
    if (takes(predivide)) {
      config_.prescale_gradients = draws_.one_in(2);
      config_.gradient_predivide_factor = draws_.of({1.0, 2.0, 4.0});
    }
    if (takes(summed)) {
      config_.gradient_allreduce_op = AllreduceOp::sum;
      out_.contract.average_over = "none";
    }
    if (takes(unmanaged)) config_.managed_gradient_accumulation = false;
  }

  void step() {
    config_.gradient_clipping = takes(Feature::clipping) ? draws_.of({0.5, 0.01, 4.0}) : 0.0;
    if (takes(Feature::adam) && out_.engine.optimizer.type != OptimizerType::muon) {
      out_.engine.optimizer.type = draws_.of({OptimizerType::adam, OptimizerType::adamw});
      out_.engine.optimizer.learning_rate = 0.125;
      if (draws_.one_in(3)) out_.engine.optimizer.weight_decay = 0.25;
    }
  }

  // What Muon is not served with, or is not modelled with.
  void suit_muon() {
    out_.engine.optimizer.momentum = draws_.of({0.5, 0.75, 0.9375});
    ZeroConfig& zero = config_.zero;
    zero.reduce_scatter = false;
    zero.use_multi_rank_bucket_allreduce = true;
    zero.offload_param = OffloadDevice::none;
    config_.grad_accum_dtype.reset();
    config_.communication_data_type.reset();
    if (zero.stage < 3) return;
    zero.contiguous_gradients = true;
    for (const Parameter& p : out_.parameters) zero.reduce_bucket_size = std::max(zero.reduce_bucket_size, p.numel);
  }

  Draws& draws_;
  const Swarm& swarm_;
  Scenario& out_;
  DeepSpeedConfig& config_;
};

}  // namespace

std::span<const FeatureInfo> features() { return all; }
void draw_engine(std::span<const Variant* const> among, Draws& draws, const Swarm& swarm, Scenario& out) { Options(draws, swarm, out).engine(among); }
void draw_options(Draws& draws, const Swarm& swarm, Scenario& out) { Options(draws, swarm, out).rest(); }

void leave_out_open_defects(Scenario& s) {
  DeepSpeedConfig& config = deepspeed_config(s);
  if (config.fp16.enabled && config.zero.stage == 0) {
    set_model_dtype(s, Dtype::bfloat16);
    config.fp16 = {};
  }
  config.fp16.loss_scale_window = Fp16Config{}.loss_scale_window;
  const auto engine = select_wrapper(s);
  if (engine.ok() && (*engine == Wrapper::fp16_fused || *engine == Wrapper::fp16_unfused)) {
    s.engine.optimizer.type = OptimizerType::sgd;
    s.engine.optimizer.weight_decay = 0;
  }
  if (engine.ok() && *engine == Wrapper::zero_stages_1_and_2) config.grad_accum_dtype.reset();
}

}  // namespace gradledger::deepspeed
