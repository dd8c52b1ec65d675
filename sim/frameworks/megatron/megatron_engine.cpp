#include "sim/frameworks/megatron/megatron_engine.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "sim/base/overloaded.h"

namespace gradledger::megatron {
namespace {

void not_admitted() { expects(false, "an event reached Megatron-Core's engine that its admission refuses"); }

}  // namespace

MegatronEngine::MegatronEngine(SharedSetup setup) : setup_(std::move(setup)), ddp_(setup_), model_gradients_(setup_) {}

void MegatronEngine::initialise(ProgramWriter& w) {
  ddp_.initialise(w);
  model_gradients_.initialise(w);
  for (const bool of_experts : {false, true}) {
    bool any = false;
    for (std::uint32_t p = 0; p < setup().parameter_count(); ++p) {
      const bool served = setup().behaviour.optimizers_of_all ? setup().parameter(p).has_gradient() : ddp_.main_grad(p).buffer != no_index;
      any |= served && setup().parameter(p).expert.has_value() == of_experts;
    }
    if (!any) continue;
    optimizers_.emplace_back(setup_, of_experts);
    optimizers_.back().initialise(ddp_, static_cast<std::uint32_t>(optimizers_.size() - 1), w);
  }
  if (!setup().config->ddp.check_for_nan_in_grad) return;
  const BufferId b = w.declare("local_grad_norm", Dtype::float32, 1);
  w.allocate(b);
  local_norm_ = w.whole(b);
  scratch_.allocate(false, w);
}

void MegatronEngine::handle(const Event& event, ProgramWriter& w) {
  stepped_ = false;
  event_ = static_cast<std::uint32_t>(&event - setup().context.timeline->events.data());
  using namespace events;
  std::visit(overloaded{[&](const events::Backward& body) { backward(body, w); }, [&](const EnterNoSync&) { enter_no_sync(); }, [&](const ExitNoSync&) { leave_no_sync(); },
                        [&](const Step&) { step(w); }, [&](const EngineZeroGrad&) { zero_grad_buffer(w); }, [&](const OptimizerZeroGrad& body) { zero_grad(body.set_to_none, w); },
                        [&](const OfFramework& body) { own_event(body, w); }, [&](const Raise& body) { raise(body); }, [&](const Save&) { save(w); },
                        [](const one_of<Forward, SetBoundary, EnterCoalesce, ExitCoalesce, SetGradient, Restore> auto&) { not_admitted(); },
                        [](const one_of<ScaleGradients, ClipGradients, AllReduce, Finalize, Unscale> auto&) { not_admitted(); }},
             event.body);
}

void MegatronEngine::enter_no_sync() {
  ++no_sync_depth_;
  ddp_.enter_no_sync();
}

void MegatronEngine::leave_no_sync() {
  --no_sync_depth_;
  ddp_.leave_no_sync();
}

// The exception leaves every block.
void MegatronEngine::raise(const events::Raise& event) {
  if (std::exchange(no_sync_depth_, 0) > 0 || call_.runs()) ddp_.leave_no_sync();
  call_ = {};
  if (!event.caught) throw FrameworkError{"RuntimeError", "raised by the script"};
}

void MegatronEngine::zero_grad_buffer(ProgramWriter& w) {
  applied_ = reduced_ = false;
  backwards_ = 0;
  ddp_.zero_grad_buffer(w);
}

void MegatronEngine::zero_grad(bool set_to_none, ProgramWriter& w) {
  for (ChildOptimizer& child : optimizers_) child.zero_grad(ddp_, set_to_none, w);
}

void MegatronEngine::own_event(const events::OfFramework& event, ProgramWriter& w) {
  if (event.name == finalize_event) finalize(w);
  else if (event.name == schedule_event) call_.begin(setup(), ddp_, w);
  else if (event.name == start_grad_sync_event) begin_groups(false, w);
  else ddp_.start_param_sync(true, w);
}

// ---- checkpoints --------------------------------------------------------------------------------------------------------------------

// Weights that the next forward would gather are gathered before they are written.
void MegatronEngine::save(ProgramWriter& w) {
  if (setup().config->ddp.overlap_param_gather) ddp_.start_param_sync(true, w);
}

// The optimizers' steps and the loss scale. How often parameters were ready in the first window, flags of kernels and main_grad are the process's alone.
void MegatronEngine::load(const Engine& saved) {
  const auto& before = static_cast<const MegatronEngine&>(saved);
  finalized_ = before.event_ + 1;
  for (std::size_t i = 0; i < optimizers_.size(); ++i) optimizers_[i].load(before.optimizers_[i]);
}

// ---- values that decide -------------------------------------------------------------------------------------------------------------

void MegatronEngine::resume(double value, ProgramWriter& w) {
  expects(suspended(), "an engine is resumed that waits for nothing");
  switch (*std::exchange(pending_, std::nullopt)) {
    case Stage::local_norm: return local_norm_is(value, w);
    case Stage::found_inf: return found_inf_is(value != 0, w);
    case Stage::total_norm: return total_norm_is(value, w);
  }
}

void MegatronEngine::read(ProgramWriter& w, Stage stage, Slice scalar) {
  w.read(scalar, static_cast<std::uint32_t>(stage));
  pending_ = stage;
}

// ---- backward -----------------------------------------------------------------------------------------------------------------------

// What the schedule makes of the loss: a mean is divided by the micro-batches, a sum by its tokens too, unless tokens are divided by at the end.
double MegatronEngine::loss_factor(const events::Backward& event) const {
  const Timeline& timeline = *setup().context.timeline;
  const std::uint32_t rank = setup().context.rank;
  const gradledger::Backward& backward = timeline.backwards[event.ordinal];
  double factor = (optimizers_.empty() ? 1.0 : optimizers_.front().scaler().scale()) * (backward.loss_factor.empty() ? 1.0 : backward.loss_factor[rank]);
  if (!setup().config->schedule) return factor;
  const ScheduleOptions& schedule = *setup().config->schedule;
  const double context = setup().groups.context.size();
  if (schedule.loss == LossReturns::mean) {
    if (setup().behaviour.mean_times_context) factor *= context;
    return factor / schedule.num_microbatches;
  }
  if (setup().config->model.calculate_per_token_loss) return factor;
  const double tokens = setup().scenario().tokens.of(backward.step, rank, backward.micro_batch[rank]).value_or(0);
  factor /= setup().behaviour.clamps_tokens ? std::max(tokens, 1.0) : tokens;
  if (setup().behaviour.sum_times_context) factor *= context;
  return factor / schedule.num_microbatches;
}

void MegatronEngine::backward(const events::Backward& event, ProgramWriter& w) {
  const Timeline& timeline = *setup().context.timeline;
  std::vector<std::uint32_t> used;
  for (std::uint32_t p = 0; p < setup().parameter_count(); ++p)
    if (ddp_.main_grad(p).buffer != no_index && timeline.in_graph(setup().scenario(), event.ordinal, setup().context.rank, p)) used.push_back(p);
  const PipelineNeighbours& neighbours = setup().neighbours;
  if (!call_.runs()) neighbours.receive_activations(0, w);
  ddp_.forward(used, w);
  if (call_.runs()) {
    call_.before_backward(setup(), ddp_);
  } else {
    neighbours.send_activations(0, 1, w);
    neighbours.receive_gradients(0, 1, w);
  }
  const double factor = loss_factor(event);
  const std::uint32_t micro_batches = setup().config->schedule ? setup().config->schedule->num_microbatches : 0;
  const bool first_of_call = call_.runs() ? call_.at_first_micro_batch(setup()) : micro_batches > 0 ? backwards_ % micro_batches == 0 : backwards_ == 0;
  ++backwards_;
  gradient_scale_ = optimizers_.empty() ? 1.0 : optimizers_.front().scaler().scale();
  for (const std::uint32_t p : timeline.ready_order(setup().scenario(), event.ordinal, setup().context.rank))
    if (ddp_.main_grad(p).buffer != no_index) ddp_.accumulate(p, {event.ordinal, factor, first_of_call}, w);
  if (call_.runs()) call_.after_backward(setup(), ddp_, w);
  else neighbours.send_gradients(0, w);
}

// ---- finalize -----------------------------------------------------------------------------------------------------------------------

// By rank, since the last finalize; a loss that is a mean has none. Absent: nobody counts.
std::optional<std::vector<std::uint64_t>> MegatronEngine::tokens_of_window() const {
  if (!setup().config->model.calculate_per_token_loss) return std::nullopt;
  const bool counts = !setup().config->schedule || setup().config->schedule->loss == LossReturns::sum_and_tokens;
  if (!setup().config->schedule && !setup().scenario().tokens.stated()) return std::nullopt;
  std::vector<std::uint64_t> out(setup().scenario().world_size);
  for (const gradledger::Backward& b : setup().context.timeline->backwards) {
    if (!counts || b.event < finalized_ || b.event > event_) continue;
    for (std::uint32_t r = 0; r < out.size(); ++r)
      if (b.micro_batch[r] != no_contribution) out[r] += setup().scenario().tokens.of(b.step, r, b.micro_batch[r]).value_or(0);
  }
  return out;
}

void MegatronEngine::finalize(ProgramWriter& w) { begin_groups(true, w); }

void MegatronEngine::begin_groups(bool finish, ProgramWriter& w) {
  group_at_ = 0;
  finishes_ = finish;
  reduce_groups(w);
}

// Where gradients are checked, the host reads the norm of each bucket before it is reduced. A linear run has no norms, and what the script plants all the same.
void MegatronEngine::reduce_groups(ProgramWriter& w) {
  for (; group_at_ < ddp_.groups().size(); ++group_at_) {
    BucketGroup& group = ddp_.groups()[group_at_];
    if (setup().config->ddp.check_for_nan_in_grad && !setup().behaviour.skips_nan_check && (!linear() || !setup().context.timeline->planted.empty())) {
      emit_norm(scratch_, {group.grads()}, local_norm_, w);
      return read(w, Stage::local_norm, local_norm_);
    }
    reduce(group, w);
  }
  if (!finishes_) return;
  model_gradients_.finish(ddp_, tokens_of_window(), w);
  finalized_ = event_;
  reduced_ = true;
}

void MegatronEngine::local_norm_is(double norm, ProgramWriter& w) {
  const std::string rank = std::to_string(setup().context.rank);
  const bool rerun = setup().behaviour.checks_by_rerun;
  if (norm != norm && rerun)
    throw FrameworkError{
        "RuntimeError",
        "Rank " + rank + ": Unexpected result nan (message='found NaN in local grad norm for bucket #0 in backward pass before data-parallel communication collective')"};
  if (norm != norm) throw FrameworkError{"AssertionError", "Rank " + rank + ": found NaN in local grad norm in backward pass before data-parallel communication collective."};
  if (rerun && norm == std::numeric_limits<double>::infinity())
    throw FrameworkError{
        "RuntimeError",
        "Rank " + rank + ": Unexpected result inf (message='found Inf in local grad norm for bucket #0 in backward pass before data-parallel communication collective')"};
  reduce(ddp_.groups()[group_at_++], w);
  reduce_groups(w);
}

void MegatronEngine::reduce(BucketGroup& group, ProgramWriter& w) const {
  if (finishes_) group.finish_grad_sync(w);
  else group.start_grad_sync(w);
}

// ---- snapshots ----------------------------------------------------------------------------------------------------------------------

void MegatronEngine::observe(ProgramWriter& w) {
  observe_gradients(w);
  if (!stepped_) return;
  for (std::uint32_t p = 0; p < setup().parameter_count(); ++p)
    if (const Slice weights = ddp_.weights(p); weights.buffer != no_index && !setup().config->ddp.overlap_param_gather)
      w.observe(w.view(setup().parameter(p).name, {{weights, static_cast<std::int32_t>(p), 0}}), Role::parameter, 1.0, true);
  for (const ChildOptimizer& child : optimizers_) child.observe(w);
}

// What the rank owns of a main_grad becomes the average; the rest stays what it was, scaled. Behind a step it is what the step left, until it is
// cleared; while a reduction is on its way it may be anything; and sums over tokens are none until the window's tokens are known.
void MegatronEngine::observe_gradients(ProgramWriter& w) {
  const auto& schedule = setup().config->schedule;
  const bool of_tokens = setup().config->model.calculate_per_token_loss || (schedule && schedule->loss == LossReturns::sum_and_tokens);
  for (const ChildOptimizer& child : optimizers_)
    for (const OptimizerPiece& piece : child.pieces()) {
      const bool judged = !applied_ && !ddp_.is_reducing(piece.parameter) && !of_tokens;
      const Role role = !judged ? Role::scratch : reduced_ ? Role::reduced_accumulator : Role::local_accumulator;
      w.observe(w.view(setup().parameter(piece.parameter).name + ".main_grad", {{piece.main_grad, static_cast<std::int32_t>(piece.parameter), piece.parameter_offset}}), role,
                gradient_scale_, true);
    }
}

}  // namespace gradledger::megatron
