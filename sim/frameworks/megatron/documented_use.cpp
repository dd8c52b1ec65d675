#include "sim/frameworks/megatron/documented_use.h"

#include <algorithm>
#include <array>
#include <set>
#include <utility>
#include <vector>

#include "sim/base/hash.h"
#include "sim/base/overloaded.h"
#include "sim/frameworks/use_walk.h"
#include "sim/frameworks/megatron/events.h"
#include "sim/frameworks/megatron/parallel_groups.h"
#include "sim/frameworks/megatron/schedules.h"

namespace gradledger::megatron {
namespace {

enum class Use : std::uint8_t {
  same_calls,
  finalize_before_step,
  one_finalize,
  zero_before_window,
  zero_behind_step,
  last_synchronised,
  all_parameters,
  backward_before_step,
  micro_batches,
  average,
  attributes,
  no_exception,
  weights,
  scheduled_backwards,
  checkpoint,
  zero_of_the_optimizer,
};

// By the numbers of Use.
constexpr std::array<UseRule, 16> rules{{
    {"same-megatron-calls", "Every rank makes the same calls in the same order."},
    {"finalize-before-step", "finalize_model_grads() runs between the last backward of a window and its step()."},
    {"one-finalize", "finalize_model_grads() runs once in a window, behind its last backward."},
    {"zero-buffer-before-window", "zero_grad_buffer() runs between step() and the next backward: optimizer.zero_grad() does not clear main_grad."},
    {"zero-buffer-behind-step", "zero_grad_buffer() does not run between a backward and the step() that applies it."},
    {"overlap-synchronised-last", "With overlap_grad_reduce every backward of a window runs in no_sync() but its last one."},
    {"parameters-of-the-first-window", "With overlap_grad_reduce the last backward of a window uses every parameter."},
    {"step-of-a-window", "A step() follows a backward of its window."},
    {"micro-batches-of-the-schedule", "A window has the micro-batches that its schedule is called with; a loop without one divides its losses itself."},
    {"mean-over-data-parallel", "Gradients are averaged over all data-parallel ranks."},
    {"attributes-of-the-layout", "A parameter's attributes say what it is on tensor-parallel ranks: a part, a copy, or a copy whose gradient is summed or averaged over them."},
    {"no-megatron-exception", "A DistributedDataParallel whose backward raised is not trained on with."},
    {"weights-of-the-megatron-loop", "What the loop multiplies a loss by, averaged as documented, is what the contribution is due to weigh.", true},
    {"backwards-of-the-schedule", "Behind forward_backward_func() come the backwards of its micro-batches, each of the parameters of its chunk, and nothing between them."},
    {"megatron-checkpoint", "A checkpoint is saved behind a step() that updates: the gradients of an open window are not in it."},
    {"zero-grad-of-the-optimizer",
     "Where the optimizer steps on fp32 weights themselves, optimizer.zero_grad() runs between step() and the next backward, and behind a backward it sets gradients to None."},
}};

// Where a rank stands.
struct RankUse {
  bool in_no_sync = false, contributed = false, finalized = false, dirty = false;
  std::uint32_t synchronised = 0;  // backwards of the window outside of no_sync
  std::uint32_t micro_batches = 0;
  std::uint32_t scheduled = 0;  // backwards that a schedule's call has still to run
  bool last_synchronised = true;
  bool grad_left = false;  // param.grad is main_grad itself
};

class Walk final : public UseWalk {
 public:
  Walk(const Scenario& scenario, const Timeline& timeline, const MegatronConfig& config)
      : UseWalk(timeline, rules, scenario.world_size), scenario_(scenario), config_(config), averaged_(first_data_parallel(scenario)), ranks_(scenario.world_size) {
    for (std::uint32_t p = 0; p < scenario.parameters.size() && !config.ddp.use_distributed_optimizer; ++p)
      steps_on_weights_ |= scenario.parameters[p].has_gradient() && scenario.dtype_of(p) == Dtype::float32;
  }

 private:
  std::uint64_t state() const override {
    TraceHash hash;
    for (const RankUse& u : ranks_) {
      for (const bool part : {u.in_no_sync, u.contributed, u.finalized, u.dirty, u.last_synchronised, u.grad_left}) hash.add(part);
      hash.add(u.synchronised);
      hash.add(u.scheduled);
    }
    return hash.value();
  }

  void broken(Use use) { UseWalk::broken(static_cast<std::size_t>(use)); }

  void leave_no_sync(std::uint32_t rank) override { ranks_[rank].in_no_sync = false; }

  // Tokens are weighed by what Megatron-Core divides by at the end of a window, which the timeline does not have.
  void on_event(const Event& e) override {
    if (e.is<events::Restore>()) return restored(e);
    if (timeline_.two_layers && e.updates() && !config_.model.calculate_per_token_loss && loop_weighs_otherwise(e)) broken(Use::weights);
  }

  // Of ranks that Megatron averages, which alone meet in a gradient; a loop that means others weighs otherwise by that.
  bool loop_weighs_otherwise(const Event& update) const {
    for (const std::uint32_t b : timeline_.backwards_of(update.step, Layer::meant))
      for (std::uint32_t r = 0; r < scenario_.world_size; ++r)
        for (std::uint32_t on = 0; timeline_.backwards[b].micro_batch[r] != no_contribution && on < scenario_.world_size; ++on)
          if (averaged_[r] == averaged_[on] && timeline_.averaged_weight(b, r, on, Layer::documented) != timeline_.averaged_weight(b, r, on, Layer::meant)) return true;
    return false;
  }

  // What new processes have of the old ones is the checkpoint alone.
  void restored(const Event& e) {
    if (lost_at(e)) broken(Use::checkpoint);
    ranks_.assign(ranks_.size(), {});
  }

  void on_rank(const Event& e, std::uint32_t rank) override {
    RankUse& u = ranks_[rank];
    using namespace events;
    if (u.scheduled > 0 && !e.is<events::Backward>()) broken(Use::scheduled_backwards), u.scheduled = 0;
    std::visit(overloaded{[&](const EnterNoSync&) { u.in_no_sync = true; }, [&](const events::Backward& body) { backward(body, rank, u); }, [&](const Step&) { step(u); },
                          [&](const EngineZeroGrad&) {
                            if (u.contributed) broken(Use::zero_behind_step);
                            u.dirty = false;
                            u.finalized = false;
                          },
                          [&](const OptimizerZeroGrad& body) {
                            if (u.contributed && !body.set_to_none) broken(Use::zero_of_the_optimizer);
                            u.grad_left &= !body.set_to_none;
                          },
                          [&](const OfFramework& body) {
                            if (body.name == finalize_event) finalize(u);
                            if (body.name == start_grad_sync_event) start_grad_sync(u);
                            if (body.name == schedule_event) u.scheduled = config_.schedule->backwards();
                          },
                          [&](const Raise&) { broken(Use::no_exception); },
                          [](const one_of<Forward, SetBoundary, ExitNoSync, EnterCoalesce, ExitCoalesce, SetGradient, ScaleGradients, ClipGradients, AllReduce, Finalize, Save,
                                          Restore, Unscale> auto&) {}},
               e.body);
  }

  void backward(const events::Backward& e, std::uint32_t rank, RankUse& u) {
    if (!timeline_.two_layers && scenario_.contract.average_over != "world") broken(Use::average);
    if (!timeline_.two_layers && !config_.schedule && timeline_.contract.divisor != Rational(1)) broken(Use::micro_batches);
    if (u.dirty) broken(Use::zero_before_window);
    if (u.finalized) broken(Use::one_finalize);
    if (u.grad_left) broken(Use::zero_of_the_optimizer);
    u.contributed = true;
    u.last_synchronised = !u.in_no_sync;
    u.synchronised += !u.in_no_sync;
    ++u.micro_batches;
    if (u.scheduled > 0) return scheduled_backward(e, rank, u);
    if (!config_.ddp.overlap_grad_reduce || u.in_no_sync) return;
    for (std::uint32_t p = 0; p < scenario_.parameters.size(); ++p)
      if (scenario_.parameters[p].has_gradient() && timeline_.contract.holds(rank, p) && !timeline_.in_graph(scenario_, e.ordinal, rank, p)) broken(Use::all_parameters);
  }

  // Which of them synchronise is the schedule's own affair.
  void scheduled_backward(const events::Backward& e, std::uint32_t rank, RankUse& u) {
    const ScheduleOptions& schedule = *config_.schedule;
    const ScheduledPass due = megatron::scheduled_backward(schedule, scenario_.engine.pipeline_stages, schedule.backwards() - u.scheduled);
    const bool completes = config_.ddp.overlap_grad_reduce && due.micro_batch + 1 == schedule.num_microbatches;
    for (std::uint32_t p = 0; p < scenario_.parameters.size(); ++p) {
      const Parameter& parameter = scenario_.parameters[p];
      if (!parameter.has_gradient() || !timeline_.contract.holds(rank, p)) continue;
      const bool used = timeline_.in_graph(scenario_, e.ordinal, rank, p), in_chunk = schedule.chunk_of(parameter.name) == due.chunk;
      if (used && !in_chunk) broken(Use::scheduled_backwards);
      if (!used && in_chunk && completes) broken(Use::all_parameters);
    }
    --u.scheduled;
    u.last_synchronised = true;
    u.synchronised = 1;
  }

  // As a pipeline stage does whose backwards all ran in no_sync().
  void start_grad_sync(RankUse& u) {
    if (!u.contributed || u.synchronised > 0) return;
    u.last_synchronised = true;
    u.synchronised = 1;
  }

  // With overlap nothing was begun where no backward ran, and Megatron-Core asserts that something was.
  void finalize(RankUse& u) {
    if (u.finalized || (config_.ddp.overlap_grad_reduce && !u.contributed)) broken(Use::one_finalize);
    if (config_.ddp.overlap_grad_reduce && u.contributed && (!u.last_synchronised || u.synchronised != 1)) broken(Use::last_synchronised);
    u.finalized = true;
  }

  // What the attributes have Megatron do is what the parameter is.
  bool attributes_fit(const Parameter& p) const {
    const Attributes attributes = config_.attributes_of(p.name);
    const bool summed = attributes.sequence_parallel && config_.model.sequence_parallel && !attributes.average_gradients_across_tp_domain;
    if (p.expert) return true;
    return attributes.tensor_model_parallel == p.part.has_value() && summed == !p.summed_over.empty() && attributes.average_gradients_across_tp_domain == !p.averaged_over.empty();
  }

  void step(RankUse& u) {
    if (!timeline_.contract.share_of.empty() && !std::all_of(scenario_.parameters.begin(), scenario_.parameters.end(), [&](const Parameter& p) { return attributes_fit(p); }))
      broken(Use::attributes);
    if (!u.contributed) broken(Use::backward_before_step);
    if (u.contributed && !u.finalized) broken(Use::finalize_before_step);
    if (config_.schedule && u.contributed && u.micro_batches != config_.schedule->backwards()) broken(Use::micro_batches);
    u.dirty = u.dirty || u.contributed;
    u.contributed = u.finalized = false;
    u.grad_left = steps_on_weights_;
    u.synchronised = u.micro_batches = u.scheduled = 0;
    u.last_synchronised = true;
  }

  const Scenario& scenario_;
  const MegatronConfig& config_;
  bool steps_on_weights_ = false;
  std::vector<std::uint32_t> averaged_;  // by rank: the first that it averages with
  std::vector<RankUse> ranks_;
};

}  // namespace

std::span<const UseRule> megatron_use_rules() { return rules; }

UseReport megatron_use_of(const Scenario& scenario, const Timeline& timeline, const MegatronConfig& config) { return Walk(scenario, timeline, config).run(); }

}  // namespace gradledger::megatron
