// Configurations and windows from a seed. What a seed means is the order of the draws: it does not change.
#include <algorithm>
#include <string>

#include "sim/frameworks/loop_drawing.h"
#include "sim/frameworks/megatron/events.h"
#include "sim/frameworks/megatron/search/parts.h"

namespace gradledger::megatron {
namespace {

constexpr Feature reduce_in_fp32 = own_feature(0), overlapping = own_feature(1), gathering = own_feature(2), averaging = own_feature(3), small_buckets = own_feature(4),
                  padding = own_feature(5), instances = own_feature(6), schedules = own_feature(7), per_token = own_feature(8), fused = own_feature(10), checks = own_feature(11),
                  counts_zeros = own_feature(12), starts_reduction = own_feature(13), loss_weights = own_feature(14), never_finalized = own_feature(15);

constexpr FeatureInfo all[] = {
    {Feature::many_parameters, "many parameters"},
    {Feature::frozen, "frozen parameters"},
    {Feature::used_by_some, "parameters of some micro-batches"},
    {Feature::expert_parallel, "expert parallel"},
    {Feature::pipeline, "pipeline"},
    {context_parallel, "context parallel"},
    {tensor_parallel, "tensor parallel"},
    {laid_out, "layout"},
    {Feature::sixteen_bits, "16 bits"},
    {reduce_in_fp32, "grad_reduce_in_fp32"},
    {overlapping, "overlap_grad_reduce"},
    {gathering, "overlap_param_gather"},
    {averaging, "average_in_collective"},
    {small_buckets, "small buckets"},
    {padding, "pad_buckets_for_high_nccl_busbw"},
    {instances, "several optimizer instances"},
    {schedules, "schedule"},
    {schedule_calls, "forward_backward_func"},
    {model_chunks, "model_chunks"},
    {aligned, "grad_sync_func"},
    {per_token, "calculate_per_token_loss"},
    {loss_weights, "weights of the loss"},
    {fused, "gradient accumulation fusion"},
    {checks, "check_for_nan_in_grad"},
    {counts_zeros, "log_num_zeros_in_grad"},
    {Feature::clipping, "clipping"},
    {Feature::adam, "Adam"},
    {Feature::overflow, "overflow"},
    {Feature::blocks, "no_sync"},
    {starts_reduction, "start_grad_sync"},
    {never_finalized, "windows that are not finalized", false},
    {Feature::zero_grads, "zero_grad"},
    {Feature::uses, "uses"},
    {Feature::order, "order"},
    {Feature::some_ranks, "events of some ranks", false},
    {Feature::raises, "raise", false},
    {Feature::double_steps, "double steps", false},
    {Feature::windows, "several windows"},
};

bool tensor_parallel_ranks(const Scenario& s) { return s.layout && s.layout->size("tp") > 1; }

class Options {
 public:
  Options(Draws& draws, const Swarm& swarm, Scenario& out) : draws_(draws), swarm_(swarm), out_(out), config_(megatron_config(out)) {}

  void engine(std::span<const Variant* const> among) {
    draw_loop_engine(among, draws_, swarm_, out_);
    if (out_.model_dtype == Dtype::float16) loss_scale();
    config_.ddp.grad_reduce_in_fp32 = takes(reduce_in_fp32);
  }

  void rest() {
    keep_one_used(out_);
    draw_layout(draws_, swarm_, out_);
    if (out_.engine.pipeline_stages > 1 && !(out_.layout && out_.layout->size("ep") > 1)) without_experts();
    if (out_.model_dtype == Dtype::float16)  // a rank whose part has no contribution takes no step: no overflow, and no skip either
      for (Parameter& p : out_.parameters) p.used_by.reset();
    ways();
    model();
    config_.optimizer.clip_grad = takes(Feature::clipping) ? draws_.of({1.0, 0.5, 0.01}) : 0.0;
    config_.optimizer.log_num_zeros_in_grad = takes(counts_zeros);
    if (leaves_parameters_out(out_) || !takes(Feature::adam)) return;
    out_.engine.optimizer.type = draws_.of({OptimizerType::adam, OptimizerType::adamw});
    out_.engine.optimizer.learning_rate = 0.125;
    if (draws_.one_in(3)) out_.engine.optimizer.weight_decay = 0.25;
  }

 private:
  bool takes(Feature feature) const { return swarm_.takes(feature, draws_); }

  void loss_scale() {
    OptimizerOptions& optimizer = config_.optimizer;
    if (draws_.one_in(2)) {
      optimizer.loss_scale = draws_.of({1.0, 8.0, 64.0});
      return;
    }
    optimizer.initial_loss_scale = draws_.of({4.0, 64.0});
    optimizer.loss_scale_window = draws_.of({1u, 2u, 1000u});
    optimizer.hysteresis = draws_.of({1u, 2u});
  }

  // A stage has experts of its own or none; those that are drawn are of one stage.
  void without_experts() {
    std::erase_if(out_.parameters, [](const Parameter& p) { return p.expert.has_value(); });
    out_.engine.expert_parallel_size = 1;
  }

  // Buckets and the ways of their reduction. A window's first backwards decide what later ones wait for: with overlap all have all parameters.
  void ways() {
    DdpOptions& ddp = config_.ddp;
    const bool some = leaves_parameters_out(out_);
    ddp.overlap_grad_reduce = !some && takes(overlapping);
    ddp.overlap_param_gather = ddp.overlap_grad_reduce && ddp.use_distributed_optimizer && takes(gathering);
    ddp.average_in_collective = takes(averaging);
    if (takes(small_buckets)) ddp.bucket_size = draws_.of({8u, 16u, 24u, 40u});
    ddp.pad_buckets_for_high_nccl_busbw = takes(padding);
    ddp.check_for_nan_in_grad = !ddp.overlap_grad_reduce && out_.model_dtype != Dtype::float16 && takes(checks);
    const bool experts = std::any_of(out_.parameters.begin(), out_.parameters.end(), [](const Parameter& p) { return p.expert.has_value(); });
    if (out_.world_size == 4 && ddp.use_distributed_optimizer && takes(instances) && !(experts && out_.layout)) two_instances();
  }

  void two_instances() {
    config_.ddp.num_distributed_optimizer_instances = 2;
    out_.groups["instance"] = {{0, 1}, {2, 3}};
    out_.groups["between_instances"] = {{0, 2}, {1, 3}};
  }

  void model() {
    if (!out_.layout && out_.world_size % 2 == 0 && takes(context_parallel))
      for (std::uint32_t r = 0; r < out_.world_size; r += 2) out_.groups["cp"].push_back({r, r + 1});
    for (const Parameter& p : out_.parameters)
      if (takes(fused)) config_.parameters[p.name].gradient_accumulation_fusion = true;
    if (takes(per_token)) {
      config_.model.calculate_per_token_loss = true;
      out_.contract.normaliser = Normaliser::tokens;
      out_.tokens.constant = draws_.of({1u, 2u, 4u});
    } else if (swarm_.often(schedules, draws_)) {
      config_.schedule.emplace();
      draw_schedule(draws_, swarm_, out_);
    } else if (takes(loss_weights) && out_.engine.pipeline_stages == 1 && !tensor_parallel_ranks(out_)) draw_loss_weights(draws_, out_);
  }

  Draws& draws_;
  const Swarm& swarm_;
  Scenario& out_;
  MegatronConfig& config_;
};

}  // namespace

std::span<const FeatureInfo> features() { return all; }
void draw_engine(std::span<const Variant* const> among, Draws& draws, const Swarm& swarm, Scenario& out) { Options(draws, swarm, out).engine(among); }
void draw_options(Draws& draws, const Swarm& swarm, Scenario& out) { Options(draws, swarm, out).rest(); }

namespace {

// All backwards are the schedule's; or with overlap all but the last stand in no_sync, or all and start_grad_sync behind them.
void draw_backwards(LoopWindow& window, Scenario& out) {
  const MegatronConfig& config = megatron_config(out);
  if (config.schedule && (config.schedule->grad_sync_func || config.schedule->interleaved() || window.takes(schedule_calls))) {
    for (ScriptItem& item : schedule_call(out)) window.add(std::move(item));
    return window.detour(ScriptKind::engine_zero_grad);
  }
  const bool overlaps = config.ddp.overlap_grad_reduce, defers = overlaps || window.takes(Feature::blocks);
  const bool starts = overlaps && config.ddp.num_distributed_optimizer_instances == 1 && window.takes(starts_reduction),
             leaves_out = !overlaps && out.engine.pipeline_stages == 1 && out.model_dtype != Dtype::float16,
             orders = leaves_out;  // of buckets: every rank's are reduced alike
  for (std::uint32_t m = 0; m < window.micro_batches(); ++m) {
    const bool in_block = defers && (starts || !window.last(m)) && !window.strays(Feature::blocks);
    if (in_block) window.in_no_sync([&] { window.micro_batch(false, leaves_out, orders); });
    else window.micro_batch(false, leaves_out, orders);
    window.detour(ScriptKind::engine_zero_grad);
  }
  if (starts) window.add(event_item(start_grad_sync_event));
}

}  // namespace

// zero_grad_buffer, backwards, finalize_model_grads, step.
void draw_window(const WindowSlot& slot, Draws& draws, const Swarm& swarm, Scenario& out) {
  MegatronConfig& config = megatron_config(out);
  LoopWindow window(slot, draws, swarm, out, config.schedule.has_value());
  const bool of_chunks = config.schedule && config.schedule->interleaved();  // they have as many micro-batches as there is room for in groups
  if (window.micro_batches() == 3 && !of_chunks) config.schedule.reset();    // losses are divided by powers of two: a third is rounded before its gradient is
  if (config.schedule && !of_chunks) config.schedule->num_microbatches = window.micro_batches();
  window.weigh_by_tokens(config.model.calculate_per_token_loss ? "tokens" : "world*tokens/tokens_of_window");
  window.clear(ScriptKind::engine_zero_grad);
  const bool clears_both = !draws.one_in(4);  // in fp32 param.grad may be main_grad, of an engine that this one is held against if not of it
  if (clears_both || (slot.as_documented && out.model_dtype == Dtype::float32)) window.add(loop_item(ScriptKind::optimizer_zero_grad));
  draw_backwards(window, out);
  if (!window.strays(never_finalized)) window.add(event_item(finalize_event));
  // What optimizers of a chain agree on behind an overflow was not recorded with experts.
  const bool experts = std::any_of(out.parameters.begin(), out.parameters.end(), [](const Parameter& p) { return p.expert.has_value(); });
  if (out.model_dtype == Dtype::float16 && (!experts || !slot.as_documented)) window.overflow();
  window.step();
}

}  // namespace gradledger::megatron
