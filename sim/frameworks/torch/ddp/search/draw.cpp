// Configurations and windows from a seed. What a seed means is the order of the draws: it does not change.
#include <algorithm>
#include <string>

#include "sim/frameworks/loop_drawing.h"
#include "sim/frameworks/torch/ddp/history.h"
#include "sim/frameworks/torch/ddp/search/parts.h"

namespace gradledger::torch::data_parallel {
namespace {

constexpr Feature small_buckets = own_feature(0), bucket_list = own_feature(1), views = own_feature(2), static_graph = own_feature(3), batched_copy = own_feature(4),
                  skips_unused = own_feature(5), comm_hooks = own_feature(6), measuring_hook = own_feature(7), delayed = own_feature(8), grad_scaler = own_feature(9),
                  loss_weights = own_feature(10), unsaid_unused = own_feature(11), summed = own_feature(12);

constexpr FeatureInfo all[] = {
    {Feature::many_parameters, "many parameters"},
    {Feature::frozen, "frozen parameters"},
    {Feature::used_by_some, "parameters of some micro-batches"},
    {Feature::sixteen_bits, "16 bits"},
    {small_buckets, "small buckets"},
    {bucket_list, "a list of bucket sizes"},
    {views, "gradient_as_bucket_view"},
    {static_graph, "static_graph"},
    {batched_copy, "batched_grad_copy"},
    {skips_unused, "skip_all_reduce_unused_params"},
    {comm_hooks, "communication hooks"},
    {measuring_hook, "noop_hook", false},
    {delayed, "delayed all-reduce", false},  // what waits for it was read and never recorded
    {unsaid_unused, "unused parameters that nothing looks for", false},
    {grad_scaler, "GradScaler"},
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
    {Feature::order, "order"},
    {Feature::some_ranks, "events of some ranks", false},
    {Feature::raises, "raise", false},
    {Feature::double_steps, "double steps", false},
    {Feature::windows, "several windows"},
};

class Options {
 public:
  Options(Draws& draws, const Swarm& swarm, Scenario& out) : draws_(draws), swarm_(swarm), out_(out), config_(ddp_config(out)) {}

  void engine(std::span<const Variant* const> among) { draw_loop_engine(among, draws_, swarm_, out_); }

  void rest() {
    keep_one_used(out_);
    buckets();
    unused();
    hooks();
    if (!leaves_parameters_out(out_)) draw_loop_optimizer(draws_, swarm_, out_);
    if (out_.model_dtype == Dtype::float32 && takes(grad_scaler)) {
      GradScalerConfig& scaler = config_.grad_scaler.emplace();
      scaler.init_scale = draws_.of({8.0, 64.0, 1024.0});
      scaler.growth_interval = draws_.of({1u, 2u, 2000u});
    }
    if (takes(loss_weights)) draw_loss_weights(draws_, out_);
    if (takes(summed)) out_.contract.average_over = "none";
    if (config_.comm_hook == CommHook::sum) mean_a_sum();
    share();
  }

 private:
  bool takes(Feature feature) const { return swarm_.takes(feature, draws_); }

  double megabytes(std::uint64_t numel) const { return static_cast<double>(numel) * 4.0 / (1024.0 * 1024.0); }

  void buckets() {
    if (takes(small_buckets)) config_.bucket_cap_mb = megabytes(draws_.of({1u, 8u, 16u, 24u}));
    else if (takes(bucket_list))
      for (std::uint32_t i = draws_.between(1, 2); i > 0; --i) config_.bucket_cap_mb_list.push_back(megabytes(draws_.of({4u, 16u, 40u})));
    config_.gradient_as_bucket_view = takes(views);
    config_.batched_grad_copy = takes(batched_copy);
    Draws aside = set_apart(draws_);
    config_.lazy_bucket_allocation = aside.one_in(4) && !ddp_history().missing(out_.engine.as_of, "lazy_bucket_allocation", "");
  }

  // A loop that leaves parameters out says so, if it keeps to the documentation. A static graph has the same ones in every backward.
  void unused() {
    const bool some = leaves_parameters_out(out_);
    const bool unsaid = takes(unsaid_unused);
    config_.static_graph = takes(static_graph) && (!some || unsaid);
    config_.find_unused_parameters = (some && !unsaid) || draws_.one_in(3);
    config_.skip_all_reduce_unused_params = config_.find_unused_parameters && (!some || unsaid) && takes(skips_unused);  // ranks skip what the others do
  }

  void hooks() {
    if (takes(comm_hooks)) {
      config_.comm_hook = draws_.of({CommHook::allreduce, CommHook::fp16_compress, CommHook::bf16_compress, CommHook::fp16_wrapper, CommHook::bf16_wrapper});
      other_hooks(draws_);
      // A wrapper gives a rank that left a parameter out a gradient of 16 bits, and documented scripts are to be clean.
      if (config_.find_unused_parameters && !config_.gradient_as_bucket_view && !swarm_.on(unsaid_unused)) unwrap();
    }
    if (takes(measuring_hook)) {
      config_.comm_hook = CommHook::noop;
      config_.power_sgd.reset();
      config_.rows.clear();
    }
    if (!takes(delayed)) return;
    // Reduced behind the gradient that is ready last: that of the first parameter, where a backward reaches all.
    DelayedAllReduce late;
    for (const Parameter& p : out_.parameters)
      if (p.has_gradient() && late.hook.empty()) late.hook = p.name;
      else if (p.has_gradient()) late.parameters.push_back(p.name);
    if (late.hook.empty() || late.parameters.empty() || leaves_parameters_out(out_)) return;
    config_.delay_all_reduce = late;
  }

  // Frozen DTensors are another matter (docs/ddp.md), and so are hooks that do not average.
  void share() {
    const bool trained = std::all_of(out_.parameters.begin(), out_.parameters.end(), [](const Parameter& p) { return p.trainable; });
    const bool alone = config_.delay_all_reduce || config_.comm_hook == CommHook::sum || config_.comm_hook == CommHook::noop;
    if (!trained || alone || !swarm_.on(Feature::many_parameters) || !draw_tensor_parallel(draws_, out_)) return;
    if (!swarm_.on(unsaid_unused)) return;
    for (const Parameter& p : out_.parameters)
      if (!p.summed_over.empty()) config_.plain.push_back(p.name);
  }

  void unwrap() {
    if (config_.comm_hook == CommHook::fp16_wrapper) config_.comm_hook = CommHook::fp16_compress;
    if (config_.comm_hook == CommHook::bf16_wrapper) config_.comm_hook = CommHook::bf16_compress;
  }

  // On a copy of the draws: what a seed means for the rest stays.
  void other_hooks(Draws aside) {
    const std::uint32_t which = aside.below(6);
    if (which == 0) config_.comm_hook = CommHook::sum;
    if (which == 1 || which == 2) power_sgd(aside);
  }

  void power_sgd(Draws& aside) {
    if (std::any_of(out_.parameters.begin(), out_.parameters.end(), [](const Parameter& p) { return p.numel == 0; })) return;
    config_.comm_hook = CommHook::power_sgd;
    PowerSgdConfig& state = config_.power_sgd.emplace();
    state.use_error_feedback = !aside.one_in(4);
    state.warm_start = !aside.one_in(4);
    state.start_powerSGD_iter = aside.between(state.use_error_feedback || state.warm_start ? 2 : 0, 4);
    state.matrix_approximation_rank = aside.between(1, 2);
    state.min_compression_rate = aside.of({0.5, 1.0, 2.0});
    for (const Parameter& p : out_.parameters)
      if (!aside.one_in(4)) config_.rows[p.name] = nearly_square(p.numel);
  }

  // The rows of the matrix with as many elements that has least rows and columns.
  static std::uint64_t nearly_square(std::uint64_t numel) {
    std::uint64_t rows = 1;
    for (std::uint64_t d = 2; d * d <= numel; ++d)
      if (numel % d == 0) rows = d;
    return rows;
  }

  // A hook that leaves the division out is right where the loop means a sum, and says nothing else of its weights.
  void mean_a_sum() {
    if (out_.contract == StatedContract{}) out_.contract.average_over = "none";
    else if (out_.contract.average_over != "none") config_.comm_hook = CommHook::allreduce;
  }

  Draws& draws_;
  const Swarm& swarm_;
  Scenario& out_;
  DdpConfig& config_;
};

}  // namespace

std::span<const FeatureInfo> features() { return all; }
void draw_engine(std::span<const Variant* const> among, Draws& draws, const Swarm& swarm, Scenario& out) { Options(draws, swarm, out).engine(among); }
void draw_options(Draws& draws, const Swarm& swarm, Scenario& out) { Options(draws, swarm, out).rest(); }

// The last backward of a window, where the loop ends backwards itself, by the numbers that are drawn.
enum class Ended : std::uint8_t { never, behind_the_step, in_place };

void draw_window(const WindowSlot& slot, Draws& draws, const Swarm& swarm, Scenario& out) {
  const DdpConfig& config = ddp_config(out);
  LoopWindow window(slot, draws, swarm, out, false);
  const bool of_module = draws.one_in(3) && !(slot.as_documented && out.layout);  // behind the first forward it has no parameters then
  const ScriptKind zero_grad = of_module ? ScriptKind::engine_zero_grad : ScriptKind::optimizer_zero_grad;
  const bool clips = window.clips(out.model_dtype);
  // A delayed all-reduce waits for one parameter and not for the last; tensor-parallel ranks add up terms in the backward, in one order.
  const bool orders = !(config.delay_all_reduce || out.layout) || !slot.as_documented;
  const bool leaves_out = (config.find_unused_parameters && !config.static_graph && orders && out.engine.optimizer.type == OptimizerType::sgd) || window.strays(unsaid_unused);
  // A parameter that a window leaves out is not stepped, and Adam counts its steps by parameter.
  // The first backward of a static graph is reduced. What no_sync alone used is never reduced where unused parameters are skipped.
  const bool defers = window.takes(Feature::blocks) && !config.skip_all_reduce_unused_params && !(slot.first && config.static_graph);
  Draws apart = set_apart(draws);
  const bool by_hand = !config.steps_inside_backwards() && !ddp_history().missing(out.engine.as_of, "finalize_backward", "") && apart.one_in(4);
  const auto ended = slot.as_documented ? Ended::in_place : static_cast<Ended>(std::min(apart.below(8), static_cast<std::uint32_t>(Ended::in_place)));
  window.clear(zero_grad);
  if (by_hand) window.add(call_item({Method::require_manual_backward_finalization, true}));
  for (std::uint32_t m = 0; m < window.micro_batches(); ++m) {
    const bool in_block = defers && (window.last(m) ? window.strays(Feature::blocks) : !draws.one_in(4));
    if (in_block) window.in_no_sync([&] { window.micro_batch(true, leaves_out, orders); });
    else window.micro_batch(true, leaves_out, orders);
    if (by_hand && !in_block && (!window.last(m) || ended == Ended::in_place)) window.add(call_item({Method::finalize_backward}));
    window.detour(zero_grad);
  }
  if (by_hand && ended == Ended::in_place) window.add(call_item({Method::require_manual_backward_finalization, false}));
  // Tensor-parallel ranks do not know of an overflow in each other's parts.
  window.before_step(config.grad_scaler.has_value(), clips, !(slot.as_documented && out.layout));
  window.step();
  if (by_hand && ended == Ended::behind_the_step) window.add(call_item({Method::finalize_backward}));
}

}  // namespace gradledger::torch::data_parallel
