// Configurations and windows from a seed. What a seed means is the order of the draws: it does not change.
#include <algorithm>
#include <set>

#include "sim/frameworks/loop_drawing.h"
#include "sim/frameworks/torch/fsdp1/search/parts.h"
#include "sim/frameworks/sharded_drawing.h"

namespace gradledger::torch::flat_sharded {
namespace {

constexpr Feature mixed_precision = own_feature(0), units = own_feature(1), mesh = own_feature(2), kept_weights = own_feature(3), original = own_feature(4),
                  low_precision = own_feature(5), prefetching = own_feature(6), on_the_cpu = own_feature(7), grad_scaler = own_feature(8), plain_scaler = own_feature(9),
                  loss_weights = own_feature(10), unlike_ranks = own_feature(11), summed = own_feature(12), called = own_feature(13);

constexpr FeatureInfo all[] = {
    {Feature::many_parameters, "many parameters"},
    {Feature::used_by_some, "parameters of some micro-batches"},
    {unlike_ranks, "parameters of some ranks", false},
    {called, "modules that are called and not used"},
    {Feature::sixteen_bits, "16 bits"},
    {mixed_precision, "mixed precision"},
    {low_precision, "keep_low_precision_grads"},
    {units, "units"},
    {mesh, "HYBRID_SHARD"},
    {kept_weights, "SHARD_GRAD_OP"},
    {original, "use_orig_params"},
    {prefetching, "prefetching"},
    {on_the_cpu, "modules that compute on the CPU"},
    {grad_scaler, "ShardedGradScaler"},
    {plain_scaler, "GradScaler", false},
    {Feature::overflow, "overflow"},
    {Feature::clipping, "clipping", false},
    {Feature::adam, "Adam"},
    {Feature::groups, "parameter groups"},
    {loss_weights, "weights of the loss"},
    {summed, "sum", false},
    {Feature::blocks, "no_sync"},
    {Feature::zero_grads, "zero_grad"},
    {Feature::own_forwards, "explicit forwards"},
    {Feature::uses, "uses"},
    {Feature::some_ranks, "events of some ranks", false},
    {Feature::raises, "raise", false},
    {Feature::double_steps, "double steps", false},
    {Feature::windows, "several windows"},
};

// A module that a forward calls and that has no part in its loss loses what was reduced before it (docs/fsdp1.md), and the root is always called.
bool root_is_used(const Scenario& s) {
  const Fsdp1Config& config = fsdp1_config(s);
  std::size_t in_units = 0;
  if (config.units)
    for (const std::vector<std::string>& unit : *config.units) in_units += unit.size();
  return !config.units || in_units == s.parameters.size();
}

// In no_sync, whatever the dtype of the reduction is (docs/fsdp1.md).
bool adds_up_narrowly(const Fsdp1Config& config) {
  const MixedPrecision& precision = config.mixed_precision;
  return precision.param_dtype && precision.reduce_dtype && size_of(*precision.param_dtype) < size_of(*precision.reduce_dtype) && !precision.keep_low_precision_grads;
}

bool says_ranks(const Parameter& p) { return p.used_by && p.used_by->text().find("rank") != std::string::npos; }

class Options {
 public:
  Options(Draws& draws, const Swarm& swarm, Scenario& out) : draws_(draws), swarm_(swarm), out_(out), config_(fsdp1_config(out)) {}

  void engine(std::span<const Variant* const> among) {
    draw_loop_engine(among, draws_, swarm_, out_);
    if (out_.model_dtype != Dtype::float32)
      return draw_wider(set_apart(draws_), swarm_.on(mixed_precision), config_.mixed_precision.param_dtype, config_.mixed_precision.reduce_dtype);
    // Where the wire is narrower than what is computed the contract has one format of two that sums pass through.
    if (!swarm_.often(mixed_precision, draws_)) return;
    MixedPrecision& precision = config_.mixed_precision;
    if (!draws_.one_in(4)) precision.param_dtype = draws_.of({Dtype::bfloat16, Dtype::bfloat16, Dtype::float16, Dtype::float32});
    if (!draws_.one_in(4)) precision.reduce_dtype = Dtype::float32;
    precision.keep_low_precision_grads = precision.param_dtype && takes(low_precision);
  }

  void rest() {
    used();
    strategy();
    modules();
    step();
    if (takes(loss_weights)) draw_loss_weights(draws_, out_);
    if (takes(summed)) out_.contract.average_over = "none";
  }

 private:
  bool takes(Feature feature) const { return swarm_.takes(feature, draws_); }

  // All ranks use the same modules. What is offloaded is accumulated in no_sync, and what was used there is used at its end.
  void used() {
    keep_one_used(out_);
    const bool unlike = takes(unlike_ranks);
    for (Parameter& p : out_.parameters)
      if (!unlike && (says_ranks(p) || config_.offload)) p.used_by.reset();
    config_.calls_unused_units = takes(called);
  }

  void strategy() {
    if (takes(on_the_cpu)) config_.computes_on_cpu = true;
    if (takes(prefetching)) {
      config_.backward_prefetch = draws_.of({BackwardPrefetch::post, BackwardPrefetch::none});
      config_.forward_prefetch = draws_.one_in(2);
    }
    if (config_.strategy == Strategy::no_shard) return;
    const bool keeps = takes(kept_weights);
    if (keeps) config_.strategy = Strategy::shard_grad_op;
    if (out_.world_size == 1 || !takes(mesh)) return;
    config_.strategy = keeps ? Strategy::hybrid_shard_zero2 : Strategy::hybrid_shard;
    config_.mesh = draw_mesh(draws_, 2, out_);  // of shards of one rank the wrapper makes NO_SHARD
  }

  // Parameters that are joined are stepped alike, unless the optimizer has the original ones. A module without elements cannot be wrapped.
  void modules() {
    if (draws_.one_in(4)) config_.wrap = Wrap::root;
    else if (takes(units)) config_.units = draw_units(draws_, out_, nullptr);
    const bool apart = !out_.engine.param_groups.empty() && (config_.units || config_.wrap == Wrap::root);
    config_.use_orig_params = takes(original) || apart;
    const std::vector<std::uint32_t> module_of = module_of_parameters(out_, config_.wrap, config_.units);
    std::set<std::uint32_t> with_elements;
    for (std::size_t p = 0; p < out_.parameters.size(); ++p)
      if (out_.parameters[p].numel > 0) with_elements.insert(module_of[p]);
    for (std::size_t p = 0; p < out_.parameters.size(); ++p)
      if (with_elements.insert(module_of[p]).second) out_.parameters[p].numel = 1;
  }

  void step() {
    if (!leaves_parameters_out(out_) && !config_.mixed_precision.keep_low_precision_grads) draw_loop_optimizer(draws_, swarm_, out_);
    if (out_.model_dtype != Dtype::float32 || !takes(grad_scaler)) return;
    GradScalerConfig& scaler = config_.grad_scaler.emplace();
    scaler.init_scale = draws_.of({8.0, 64.0, 1024.0});
    scaler.growth_interval = draws_.of({1u, 2u, 2000u});
    config_.plain_grad_scaler = takes(plain_scaler);
  }

  Draws& draws_;
  const Swarm& swarm_;
  Scenario& out_;
  Fsdp1Config& config_;
};

}  // namespace

std::span<const FeatureInfo> features() { return all; }
void draw_engine(std::span<const Variant* const> among, Draws& draws, const Swarm& swarm, Scenario& out) { Options(draws, swarm, out).engine(among); }
void draw_options(Draws& draws, const Swarm& swarm, Scenario& out) { Options(draws, swarm, out).rest(); }

// Every forward has its backward before the next one. What was used in no_sync is used behind it; with CPU offload one backward of a window is reduced.
void draw_window(const WindowSlot& slot, Draws& draws, const Swarm& swarm, Scenario& out) {
  const Fsdp1Config& config = fsdp1_config(out);
  LoopWindow window(slot, draws, swarm, out, false);
  const ScriptKind zero_grad = draws.one_in(3) ? ScriptKind::engine_zero_grad : ScriptKind::optimizer_zero_grad;
  const MixedPrecision& precision = config.mixed_precision;
  const bool clips = window.clips(precision.keep_low_precision_grads ? precision.param_dtype.value_or(out.model_dtype) : out.model_dtype);
  const bool may_defer = !leaves_parameters_out(out) && !(slot.as_documented && adds_up_narrowly(config));
  const bool defers = config.offload || (window.takes(Feature::blocks) && may_defer);
  const bool leaves_out = !defers && out.engine.optimizer.type == OptimizerType::sgd && (!slot.as_documented || (root_is_used(out) && !config.forward_prefetch));
  window.clear(zero_grad);
  for (std::uint32_t m = 0; m < window.micro_batches(); ++m) {
    const bool inner = !window.last(m) && (config.offload || !draws.one_in(4));
    const bool in_block = defers && (window.last(m) ? window.strays(Feature::blocks) : inner && !window.strays(Feature::blocks));
    if (!slot.as_documented && swarm.on(Feature::own_forwards) && m + 2 < window.micro_batches() && draws.one_in(6)) {
      window.two_micro_batches();
      ++m;
    } else if (in_block) {
      window.in_no_sync([&] { window.micro_batch(true, leaves_out, false); });
    } else {
      window.micro_batch(true, leaves_out, false);
    }
    window.detour(zero_grad);
  }
  window.before_step(config.grad_scaler.has_value(), clips);
  window.step();
}

void leave_out_open_defects(Scenario& s) {
  Fsdp1Config& config = fsdp1_config(s);
  config.calls_unused_units = false;
  if (config.offload) {
    config.mixed_precision.keep_low_precision_grads = false;
    if (adds_up_narrowly(config)) config.mixed_precision.reduce_dtype.reset();
    if (config.computes_on_cpu) {
      config.use_orig_params = false;
      s.engine.param_groups.clear();
    }
  }
  if (!root_is_used(s) || config.forward_prefetch)
    for (Parameter& p : s.parameters) p.used_by.reset();
  const bool cut = config.strategy != Strategy::no_shard && s.world_size > 1;
  for (Parameter& p : s.parameters)
    if (cut && !config.use_orig_params && p.numel == 1) p.numel = 2;
}

}  // namespace gradledger::torch::flat_sharded
