// Configurations and windows from a seed. What a seed means is the order of the draws: it does not change.
#include <algorithm>
#include <string>

#include "sim/frameworks/loop_drawing.h"
#include "sim/frameworks/torch/fsdp2/behaviour.h"
#include "sim/frameworks/torch/fsdp2/modules.h"
#include "sim/frameworks/torch/fsdp2/search/parts.h"
#include "sim/frameworks/sharded_drawing.h"

namespace gradledger::torch::fully_shard {
namespace {

constexpr Feature mixed_precision = own_feature(0), units = own_feature(1), mesh = own_feature(2), rows = own_feature(3), divide_factor = own_feature(4),
                  force_sum = own_feature(5), zeros_for_unused = own_feature(6), resharding = own_feature(7), switches = own_feature(8), last_backward = own_feature(9),
                  unsharding = own_feature(10), grad_scaler = own_feature(11), loss_weights = own_feature(12), unsaid_unused = own_feature(13), summed = own_feature(14);

constexpr FeatureInfo all[] = {
    {Feature::many_parameters, "many parameters"},
    {Feature::frozen, "frozen parameters"},
    {Feature::used_by_some, "parameters of some micro-batches"},
    {Feature::sixteen_bits, "16 bits"},
    {mixed_precision, "mixed precision"},
    {units, "units"},
    {mesh, "mesh of two dimensions"},
    {rows, "rows"},
    {divide_factor, "gradient_divide_factor"},
    {force_sum, "force_sum_reduction_for_comms"},
    {zeros_for_unused, "reduce_scatter_unused_params"},
    {unsaid_unused, "unused parameters that nothing announces", false},
    {resharding, "resharding"},
    {grad_scaler, "GradScaler"},
    {Feature::overflow, "overflow"},
    {Feature::clipping, "clipping", false},
    {Feature::adam, "Adam"},
    {Feature::groups, "parameter groups"},
    {loss_weights, "weights of the loss"},
    {summed, "sum", false},
    {Feature::blocks, "no_sync"},
    {switches, "set_requires_gradient_sync"},
    {last_backward, "set_is_last_backward"},
    {unsharding, "unshard"},
    {Feature::zero_grads, "zero_grad"},
    {Feature::own_forwards, "explicit forwards"},
    {Feature::uses, "uses"},
    {Feature::some_ranks, "events of some ranks", false},
    {Feature::raises, "raise", false},
    {Feature::double_steps, "double steps", false},
    {Feature::windows, "several windows"},
};

// How backwards before the last one of a window are left unreduced. One of them in a script: each sets what another reads.
enum class Deferral : std::uint8_t { none, block, gradient_sync, all_reduce };

Deferral deferral_of(const Swarm& swarm, const Fsdp2Config& config) {
  if (config.mesh && swarm.weight(mesh) > 2) return Deferral::all_reduce;
  if (swarm.on(switches)) return Deferral::gradient_sync;
  return swarm.on(Feature::blocks) ? Deferral::block : Deferral::none;
}

class Options {
 public:
  Options(Draws& draws, const Swarm& swarm, Scenario& out) : draws_(draws), swarm_(swarm), out_(out), config_(fsdp2_config(out)) {}

  void engine(std::span<const Variant* const> among) {
    if (often(Feature::sixteen_bits)) out_.model_dtype = draws_.of({Dtype::bfloat16, Dtype::bfloat16, Dtype::float16});
    among[draws_.below(static_cast<std::uint32_t>(among.size()))]->apply(out_);
    if (out_.model_dtype != Dtype::float32)
      return draw_wider(set_apart(draws_), swarm_.on(mixed_precision), config_.mixed_precision.param_dtype, config_.mixed_precision.reduce_dtype);
    // Where the wire is narrower than what is computed the contract has one format of two that sums pass through.
    if (!often(mixed_precision)) return;
    if (!draws_.one_in(4)) config_.mixed_precision.param_dtype = draws_.of({Dtype::bfloat16, Dtype::bfloat16, Dtype::float16, Dtype::float32});
    if (!draws_.one_in(4)) config_.mixed_precision.reduce_dtype = Dtype::float32;
  }

  void rest() {
    keep_one_used(out_);
    modules();
    if (takes(mesh)) config_.mesh = draw_mesh(draws_, 1, out_);
    if (takes(rows)) cut_rows();
    unused();
    step();
    if (takes(loss_weights)) draw_loss_weights(draws_, out_);
    else if (takes(divide_factor)) config_.gradient_divide_factor = draws_.of({1.0, 2.0, 4.0, 8.0, 0.5});
    if (takes(force_sum)) config_.force_sum_reduction_for_comms = true;
    if (takes(summed)) out_.contract.average_over = "none";
    share();
    keep_dtypes(set_apart(draws_));
  }

 private:
  bool takes(Feature feature) const { return swarm_.takes(feature, draws_); }
  bool often(Feature feature) const { return swarm_.often(feature, draws_); }

  void modules() {
    if (takes(resharding)) config_.reshard_after_forward = draws_.one_in(2);
    if (draws_.one_in(8)) config_.input_requires_grad = true;
    if (draws_.one_in(4)) config_.wrap = Wrap::root;
    if (config_.wrap == Wrap::root || !takes(units)) return;
    config_.units = draw_units(draws_, out_, &config_.nested);
    config_.root_parameters_last = draws_.one_in(4);
  }

  void cut_rows() {
    for (const Parameter& p : out_.parameters)
      for (const std::uint32_t length : {4u, 3u, 2u})
        if (p.numel > 0 && p.numel % length == 0 && draws_.one_in(2)) {
          config_.rows[p.name] = p.numel / length;
          break;
        }
  }

  // What ranks use differently is announced, if the loop keeps to the documentation.
  void unused() {
    const bool some = leaves_parameters_out(out_);
    const bool unsaid = takes(unsaid_unused);
    const bool frozen = std::any_of(out_.parameters.begin(), out_.parameters.end(), [](const Parameter& p) { return !p.trainable; });
    if ((some && !unsaid) || takes(zeros_for_unused)) config_.reduce_scatter_unused_params = config_.calls_unused_units = true;
    else if (frozen || draws_.one_in(4)) config_.calls_unused_units = true;  // a module without gradients is called all the same
  }

  // Some parameters compute in the dtype of their weights. Of two in 16 bits there is no contract.
  void keep_dtypes(Draws aside) {
    MixedPrecision& given = config_.mixed_precision;
    if (!given.param_dtype || *given.param_dtype == out_.model_dtype || (*given.param_dtype != Dtype::float32 && out_.model_dtype != Dtype::float32)) return;
    if (!aside.one_in(3) || history().missing(out_.engine.as_of, "param_dtype_override_fn", "")) return;
    for (std::uint32_t p = 0; p < out_.parameters.size(); ++p)
      if (aside.one_in(2)) given.param_dtype_override_fn[out_.parameters[p].name] = aside.one_in(8) ? *given.param_dtype : out_.dtype_of(p);
  }

  // A parameter that the plan leaves out has a norm over another mesh, and no GradScaler.
  void share() {
    if (!swarm_.on(Feature::many_parameters) || !draw_tensor_parallel(draws_, out_)) return;
    if (config_.mesh) mesh_of_the_layout(set_apart(draws_));
    if (!swarm_.on(unsaid_unused) || config_.grad_scaler) return;
    for (const Parameter& p : out_.parameters)
      if (!p.summed_over.empty()) config_.plain.push_back(p.name);
  }

  // Replicas and shards become dimensions of the layout: two of each among eight ranks, else shards of all data-parallel ranks or of none.
  void mesh_of_the_layout(Draws draws) {
    const std::uint32_t ranks = out_.layout->size("tp");
    if (out_.world_size == 4 && ranks == 2 && draws.one_in(2)) out_.world_size = 8;
    const std::uint32_t data = out_.world_size / ranks, shard = data == 4 ? 2 : draws.one_in(4) ? 1 : data;
    out_.groups.clear();
    out_.layout = RankLayout::of("", {{"tp", ranks}, {"shard", shard}}, out_.world_size).value();
  }

  void step() {
    draw_loop_optimizer(draws_, swarm_, out_);
    if (out_.model_dtype != Dtype::float32 || !takes(grad_scaler)) return;
    GradScalerConfig& scaler = config_.grad_scaler.emplace();
    scaler.init_scale = draws_.of({8.0, 64.0, 1024.0});
    scaler.growth_interval = draws_.of({1u, 2u, 2000u});
  }

  Draws& draws_;
  const Swarm& swarm_;
  Scenario& out_;
  Fsdp2Config& config_;
};

// Open defects, of documented calls: partial sums of different parameters between two reductions over replicas, and, where the wire has a dtype of its
// own, between two reductions at all. A module that no forward called cannot be left unreduced. With offload, what the host waits for was read and
// never recorded.
bool may_leave_out(const Scenario& s) {
  const Fsdp2Config& config = fsdp2_config(s);
  return config.calls_unused_units && !config.offload && !config.mesh && config.mixed_precision == MixedPrecision{} && s.engine.optimizer.type == OptimizerType::sgd;
}

class Window {
  // What a loop that ends backwards itself may do wrong, by the numbers that are drawn.
  enum class Slip : std::uint8_t { sync_comes_late, not_finalized, not_waited_for, none };

 public:
  Window(const WindowSlot& slot, Draws& draws, const Swarm& swarm, Scenario& out)
      : config_(fsdp2_config(out)), draws_(draws), swarm_(swarm), window_(slot, draws, swarm, out, false), deferral_(deferral_of(swarm, config_)) {
    zero_grad_ = draws.one_in(3) ? ScriptKind::engine_zero_grad : ScriptKind::optimizer_zero_grad;
    offload_ = slot.as_documented && config_.offload;
    strays_ = !slot.as_documented;
    leaves_out_ = !slot.as_documented || (deferral_ != Deferral::all_reduce && may_leave_out(out));
    clips_ = window_.clips(out.model_dtype);
    Draws apart = set_apart(draws);
    by_hand_ = deferral_ != Deferral::all_reduce && !history().missing(out.engine.as_of, "finalize_backward", "") && apart.one_in(4);
    waits_apart_ = apart.one_in(2);
    if (strays_) slip_ = static_cast<Slip>(std::min(apart.below(8), static_cast<std::uint32_t>(Slip::none)));
    known_to_all_ = !out.layout || std::all_of(out.parameters.begin(), out.parameters.end(), [](const Parameter& p) { return !p.has_gradient() || p.part; });
  }

  void draw() {
    window_.clear(zero_grad_);
    const bool several = window_.micro_batches() > 1;
    const bool defers = several && !draws_.one_in(4) && !(by_hand_ && offload_), waits_late = several && !offload_ && window_.takes(last_backward),
               keeps = window_.takes(resharding);
    if (by_hand_) say(Method::set_manual_backward_finalization, true);
    if (waits_late) say(Method::set_is_last_backward, false);
    if (keeps) say(Method::set_reshard_after_backward, false);
    if (keeps && draws_.one_in(2)) say(Method::set_reshard_after_forward, draws_.one_in(2));
    if (defers) defer(false);
    for (std::uint32_t m = 0; m < window_.micro_batches(); ++m) {
      if (window_.last(m)) {
        if (defers && !by_hand_ && !window_.strays(switches)) defer(true);
        if (waits_late && !window_.strays(last_backward)) say(Method::set_is_last_backward, true);
        if (keeps && !window_.strays(resharding)) say(Method::set_reshard_after_backward, true);
      }
      if (!offload_ && window_.takes(unsharding)) say(Method::unshard, 0);
      const bool in_block = defers && deferral_ == Deferral::block && (by_hand_ || !window_.last(m) || window_.strays(Feature::blocks));
      if (in_block) window_.in_no_sync([&] { window_.micro_batch(true, leaves_out_, false); });
      else if (m + 2 < window_.micro_batches() && swarm_.on(Feature::own_forwards) && draws_.one_in(4) && strays_) {  // documented, but for a race (docs/fsdp2.md)
        window_.two_micro_batches();
        ++m;
      } else window_.micro_batch(true, leaves_out_, false);
      if (by_hand_ && (window_.last(m) || !defers || deferral_ == Deferral::none)) finalize(defers);
      window_.detour(zero_grad_);
    }
    if (by_hand_) say(Method::set_manual_backward_finalization, false);
    window_.before_step(config_.grad_scaler.has_value(), clips_, strays_ || known_to_all_);
    window_.step();
  }

 private:
  void say(Method method, double value) { window_.add(call_item(method, value)); }
  void defer(bool reduces) {
    if (deferral_ == Deferral::gradient_sync) say(Method::set_requires_gradient_sync, reduces);
    if (deferral_ == Deferral::all_reduce) say(Method::set_requires_all_reduce, reduces);
  }
  // Behind the backwards that it ends.
  void finalize(bool defers) {
    if (defers && slip_ != Slip::sync_comes_late) defer(true);
    if (slip_ != Slip::not_finalized) say(Method::finalize_backward, waits_apart_);
    if (waits_apart_ && slip_ != Slip::not_waited_for) say(Method::wait_for_gradient_reduction, 0);
    if (defers && slip_ == Slip::sync_comes_late) defer(true);
  }

  const Fsdp2Config& config_;
  Draws& draws_;
  const Swarm& swarm_;
  LoopWindow window_;
  Deferral deferral_;
  ScriptKind zero_grad_;
  bool leaves_out_ = true, clips_ = false, offload_ = false, strays_ = false;
  bool by_hand_ = false, waits_apart_ = false;  // the loop ends backwards, in two calls or in one
  Slip slip_ = Slip::none;
  bool known_to_all_ = true;  // an overflow, wherever it is (docs/fsdp2.md)
};

}  // namespace

std::span<const FeatureInfo> features() { return all; }
void draw_engine(std::span<const Variant* const> among, Draws& draws, const Swarm& swarm, Scenario& out) { Options(draws, swarm, out).engine(among); }
void draw_options(Draws& draws, const Swarm& swarm, Scenario& out) { Options(draws, swarm, out).rest(); }
void draw_window(const WindowSlot& slot, Draws& draws, const Swarm& swarm, Scenario& out) { Window(slot, draws, swarm, out).draw(); }

void leave_out_open_defects(Scenario& s) {
  Fsdp2Config& config = fsdp2_config(s);
  if (config.offload && config.mesh) {
    config.mesh.reset();
    s.groups.clear();
  }
  for (Parameter& p : s.parameters) p.used_by.reset();
  // Of every release: reductions are in the one or the other where nothing else is said.
  const auto reduces_in_fp16 = [&](Dtype otherwise) { return config.mixed_precision.reduce_dtype.value_or(otherwise) == Dtype::float16; };
  const bool by_kernels = config.force_sum_reduction_for_comms || reduces_in_fp16(s.model_dtype) || reduces_in_fp16(config.mixed_precision.param_dtype.value_or(s.model_dtype));
  if (by_kernels && shards_of(s, config) == 1) config.gradient_divide_factor.reset();
}

}  // namespace gradledger::torch::fully_shard
