#include "sim/frameworks/megatron_fsdp/megatron_fsdp_engine.h"

#include <algorithm>
#include <utility>

#include "sim/base/overloaded.h"
#include "sim/frameworks/plain_step.h"

namespace gradledger::megatron_fsdp {

MegatronFsdpEngine::MegatronFsdpEngine(const EngineContext& context, const MegatronFsdpConfig& config, const Behaviour& behaviour)
    : setup_(std::make_shared<Setup>(Setup{context, &config, behaviour, layout_of(*context.scenario, config, context.rank)})),
      weights_(setup_),
      params_(context.scenario->parameters.size()),
      model_auto_sync_(config.sync_model_each_microbatch) {
  const std::vector<ParameterGroup>& groups = setup().layout.groups;
  buffer_of_.assign(groups.size(), groups.size());
  for (std::uint32_t g = 0; g < groups.size(); ++g) {
    for (std::size_t at = 0; at < groups[g].parameters.size(); ++at) {
      Param& p = params_[groups[g].parameters[at]];
      p.group = g;
      p.at = at;
      p.own = setup().layout.owned(groups[g], at);
    }
    if (!groups[g].requires_grad) continue;
    buffer_of_[g] = buffers_.size();
    buffers_.emplace_back(setup_, g);
  }
  for (std::uint32_t p = 0; p < params_.size(); ++p) optimizers_.emplace_back(setup().optimizer_of(p), false);
}

void MegatronFsdpEngine::initialise(ProgramWriter& w) {
  const auto buffer = [&](const std::string& name, Dtype dtype, std::uint64_t numel) {
    const BufferId b = w.declare(name, dtype, numel);
    w.allocate(b);
    return w.whole(b);
  };
  for (std::uint32_t p = 0; p < params_.size(); ++p) {
    Param& param = params_[p];
    if (param.own.numel() == 0) continue;
    param.weights = buffer(setup().parameter(p).name, setup().scenario().dtype_of(p), param.own.numel());
    initialise_weights(w, param.weights, p, param.own.begin);
    if (!setup().parameter(p).has_gradient()) continue;
    if (has_main_weights()) {
      param.main_weights = buffer(setup().parameter(p).name + ".main_weight", Dtype::float32, param.own.numel());
      initialise_weights(w, param.main_weights, p, param.own.begin);
    }
    optimizers_[p].initialise(w, param.own.numel(), "[" + setup().parameter(p).name + "]");
  }
  for (GradBuffer& each : buffers_) each.initialise(w);
  if (setup().behaviour.steps_when_made && setup().config->fully_shard_optimizer) first_step(w);
}

// fully_shard_optimizer() steps once with gradients of zeros, so that there is a state to load: the optimizer has counted a step, and decayed weights.
void MegatronFsdpEngine::first_step(ProgramWriter& w) {
  for (std::uint32_t p = 0; p < params_.size(); ++p) {
    if (!setup().parameter(p).has_gradient() || params_[p].own.numel() == 0 || !optimizers_[p].heeds_zeros()) continue;
    const Tensor zeros = tensors_.allocate(w, setup().parameter(p).name + ".main_grad", Dtype::float32, params_[p].own.numel());
    w.fill(zeros.slice, 0.0);
    params_[p].installed = zeros.slice;
    update(p, w);
    params_[p].installed = Slice{};
    tensors_.drop(w, zeros);
  }
}

void MegatronFsdpEngine::handle(const Event& event, ProgramWriter& w) {
  stepped_ = false;
  using namespace events;
  std::visit(overloaded{[&](const events::Backward& body) { backward(body, w); },
                        [&](const EnterNoSync&) {
                          in_no_sync_ = true;
                          is_last_microbatch_ = false;
                        },
                        [&](const ExitNoSync&) {
                          in_no_sync_ = false;
                          is_last_microbatch_ = true;
                        },
                        [&](const OfFramework& body) {
                          if (body.name == finish_event) finish_grad_sync(w);
                          else model_auto_sync_ = body.arguments.as<Call>().sync;
                        },
                        [&](const Step&) { step(w); }, [&](const one_of<EngineZeroGrad, OptimizerZeroGrad> auto&) { zero_grad(w); },
                        [&](const ScaleGradients& body) { scale_gradients(body.by[setup().context.rank], w); }, [&](const AllReduce& body) { all_reduce(body, w); },
                        [&](const Raise& body) { raise(body); }, [](const Save&) {},  // of the weights that are stepped, and the optimizer's state
                        [](const one_of<Forward, SetBoundary, EnterCoalesce, ExitCoalesce, SetGradient, ClipGradients, Finalize, Restore, Unscale> auto&) {
                          expects(false, "MegatronFSDP is given an event that its admission refuses");
                        }},
             event.body);
}

void MegatronFsdpEngine::raise(const events::Raise& event) {
  if (std::exchange(in_no_sync_, false)) is_last_microbatch_ = true;
  if (!event.caught) throw FrameworkError{"RuntimeError", "raised by the script"};
}

// ---- backward -----------------------------------------------------------------------------------------------------------------------

void MegatronFsdpEngine::backward(const events::Backward& event, ProgramWriter& w) {
  const Timeline& timeline = *setup().context.timeline;
  const std::uint32_t rank = setup().context.rank;
  const std::vector<double>& of_loop = timeline.backwards[event.ordinal].loss_factor;
  const double factor = of_loop.empty() ? 1.0 : of_loop[rank];
  pending_.assign(params_.size(), false);
  for (std::uint32_t p = 0; p < params_.size(); ++p) pending_[p] = setup().parameter(p).has_gradient();
  const std::vector<ModuleCall> calls = forward_calls(setup().context, setup().layout, event.ordinal, false);
  weights_.begin_micro_batch(model_auto_sync_);
  weights_.forward(calls, tensors_, w);
  weights_.begin_backward();
  CallsBackwards backwards(calls);
  const auto up_to = [&](std::uint32_t p) {
    backwards.up_to(
        p,
        [&](const ModuleCall& call) {
          if (call.reached) weights_.pre_backward(call, tensors_, w);
        },
        [&](const ModuleCall& call) {
          // What marks a module's end is a node before its input.
          if (call.goes_on) weights_.post_backward(call, tensors_, w);
        });
  };
  for (const std::uint32_t p : timeline.ready_order(setup().scenario(), event.ordinal, rank)) {
    up_to(p);
    if (!pending_[p]) continue;
    const Tensor grad = tensors_.allocate(w, setup().parameter(p).name + ".grad", setup().scenario().dtype_of(p), setup().parameter(p).numel);
    w.deposit(grad.slice, event.ordinal, p, 0, factor, false);
    buffers_[buffer_of_[params_[p].group]].add(params_[p].at, grad.slice, tensors_, w);
    tensors_.drop(w, grad);
    if (reduces_now()) reduce_gradients(p, w);
    pending_[p] = false;
  }
  up_to(no_index);
  root_post_backward(w);
}

// What the backward did not reach counts as zeros, so that every bucket is reduced.
void MegatronFsdpEngine::root_post_backward(ProgramWriter& w) {
  std::vector<std::uint32_t> left;
  for (std::uint32_t p = 0; p < params_.size(); ++p)
    if (pending_[p]) left.push_back(p);
  for (const std::uint32_t p : left) buffers_[buffer_of_[params_[p].group]].add_nothing(params_[p].at, tensors_, w);
  if (reduces_now()) {
    std::stable_sort(left.begin(), left.end(), [&](std::uint32_t a, std::uint32_t b) { return params_[a].group < params_[b].group; });
    for (const std::uint32_t p : left) reduce_gradients(p, w);
    wait_for_reductions(w);
  }
  weights_.end_micro_batch();
  if (model_auto_sync_) finish_grad_sync(w);
}

// Buckets of one unit are reduced together, once all of them are there.
void MegatronFsdpEngine::reduce_gradients(std::uint32_t p, ProgramWriter& w) {
  const std::size_t own = buffer_of_[params_[p].group];
  buffers_[own].mark_ready(params_[p].at);
  std::vector<std::size_t> together;
  const std::uint32_t unit = buffers_[own].group().unit;
  for (std::size_t b = 0; b < buffers_.size(); ++b)
    if (b == own || (unit != 0 && buffers_[b].group().unit == unit)) together.push_back(b);
  if (std::all_of(together.begin(), together.end(), [&](std::size_t b) { return buffers_[b].all_ready(); })) reduce_unit(together, w);
}

void MegatronFsdpEngine::reduce_unit(const std::vector<std::size_t>& buffers, ProgramWriter& w) {
  const std::uint32_t ready = w.record();
  std::uint32_t done = no_index;
  {
    const OnStream on(w, Stream::communication);
    w.wait(ready);
    for (const std::size_t b : buffers) buffers_[b].reduce(tensors_, w);
    done = w.record();
  }
  if (setup().layout.hybrid && (is_last_microbatch_.value_or(false) || model_auto_sync_)) {
    const OnStream on(w, Stream::all_reduce);
    w.wait(done);
    for (const std::size_t b : buffers) buffers_[b].reduce_outside(tensors_, w);
    if (setup().behaviour.waits_for_outer) done = w.record();
  }
  in_flight_.push_back(done);
  to_free_.insert(to_free_.end(), buffers.begin(), buffers.end());
}

void MegatronFsdpEngine::wait_for_reductions(ProgramWriter& w) {
  for (const std::uint32_t event : std::exchange(in_flight_, {})) w.wait(event);
  for (const std::size_t b : std::exchange(to_free_, {})) buffers_[b].free_up(tensors_, w);
}

// ---- methods ------------------------------------------------------------------------------------------------------------------------

// Without overlap it is a reduction of its own, though the hooks of the backward have reduced.
void MegatronFsdpEngine::finish_grad_sync(ProgramWriter& w) {
  const bool no_shard = setup().strategy() == Strategy::no_shard;
  const bool again = no_shard ? setup().behaviour.reduces_again_no_shard : setup().behaviour.reduces_again_optim;
  if (!setup().config->overlap_grad_reduce && !setup().config->shards_gradients() && again)
    for (GradBuffer& each : buffers_) each.reduce_whole_buffer(w);
  update_main_grads(w);
  weights_.reset(tensors_, w);
}

// A view of the buffer where the dtypes are one, else a copy.
void MegatronFsdpEngine::update_main_grads(ProgramWriter& w) {
  for (std::uint32_t p = 0; p < params_.size(); ++p) {
    Param& param = params_[p];
    if (!setup().parameter(p).has_gradient() || param.own.numel() == 0) continue;
    const Slice own = buffers_[buffer_of_[param.group]].owned(param.at);
    if (!has_main_weights() || w.declaration(own.buffer).dtype == Dtype::float32) {
      param.installed = own;
      continue;
    }
    if (!param.cast.defined()) param.cast = tensors_.allocate(w, setup().parameter(p).name + ".main_grad", Dtype::float32, own.numel);
    w.copy(param.cast.slice, own);
    param.installed = param.cast.slice;
  }
}

void MegatronFsdpEngine::zero_grad(ProgramWriter& w) {
  applied_ = false;
  for (Param& param : params_) {
    param.installed = Slice{};
    tensors_.clear(w, param.cast);
  }
  for (GradBuffer& each : buffers_) each.zero(w);
}

void MegatronFsdpEngine::scale_gradients(double factor, ProgramWriter& w) {
  for (GradBuffer& each : buffers_) each.scale(factor, w);
  update_main_grads(w);
}

// ---- step ---------------------------------------------------------------------------------------------------------------------------

void MegatronFsdpEngine::step(ProgramWriter& w) {
  if (!model_auto_sync_ && setup().config->fully_shard_optimizer) finish_grad_sync(w);
  std::vector<ViewPiece> applied;
  for (std::uint32_t p = 0; p < params_.size(); ++p)
    if (params_[p].installed.buffer != no_index) applied.push_back(piece_of(p, params_[p].installed).front());
  w.observe(w.view("param.grad", std::move(applied)), Role::applied_gradient, 1.0, false);
  for (std::uint32_t p = 0; p < params_.size(); ++p)
    if (params_[p].installed.buffer != no_index) update(p, w);
  install_optimized_model_weights(w);
  w.report(StepFact::updated, 1.0);
  stepped_ = applied_ = true;
}

void MegatronFsdpEngine::update(std::uint32_t p, ProgramWriter& w) {
  const Param& param = params_[p];
  const OptimizerConfig optimizer = setup().optimizer_of(p);
  if (!has_main_weights() && setup().scenario().dtype_of(p) != Dtype::float32)
    return low_precision_sgd(tensors_, w, setup().parameter(p).name, setup().scenario().dtype_of(p), param.weights, param.installed, optimizer.learning_rate);
  optimizers_[p].begin_step();
  optimizers_[p].update(w, stepped(param), param.installed, 0);
}

void MegatronFsdpEngine::install_optimized_model_weights(ProgramWriter& w) {
  if (!has_main_weights()) return;
  for (const Param& param : params_)
    if (param.main_weights.buffer != no_index) w.copy(param.weights, param.main_weights);
}

// Of a scalar, as admission sees to it.
void MegatronFsdpEngine::all_reduce(const events::AllReduce& event, ProgramWriter& w) {
  const Timeline& timeline = *setup().context.timeline;
  const ProcessGroup over = group_named(setup().scenario(), timeline.contract.groups, timeline.group_names[event.over], setup().context.rank);
  if (over.size() > 1) all_reduce_scalar(tensors_, w, over);
}

// ---- checkpoints --------------------------------------------------------------------------------------------------------------------

// Neither buffers of gradients nor flags of no_sync() and set_model_auto_sync() are in it.
void MegatronFsdpEngine::load(const Engine& saved) {
  const auto& before = static_cast<const MegatronFsdpEngine&>(saved);
  for (std::size_t p = 0; p < optimizers_.size(); ++p) optimizers_[p].load(before.optimizers_[p]);
}

// ---- snapshots ----------------------------------------------------------------------------------------------------------------------

void MegatronFsdpEngine::observe(ProgramWriter& w) {
  for (const GradBuffer& each : buffers_) each.observe(1.0, !applied_, w);
  for (std::uint32_t p = 0; p < params_.size(); ++p)
    if (const Slice grad = params_[p].installed; grad.buffer != no_index) w.observe(w.view(setup().parameter(p).name + ".grad", piece_of(p, grad)), Role::scratch, 1.0, true);
  if (!stepped_) return;
  for (std::uint32_t p = 0; p < params_.size(); ++p) {
    const Param& param = params_[p];
    if (!setup().parameter(p).has_gradient() || param.own.numel() == 0) continue;
    w.observe(w.view(setup().parameter(p).name, piece_of(p, param.weights)), Role::parameter, 1.0, true);
    if (has_main_weights()) w.observe(w.view(setup().parameter(p).name + ".main_weight", piece_of(p, param.main_weights)), Role::master_parameter, 1.0, true);
    optimizers_[p].observe(w, piece_of(p, {no_index, 0, param.own.numel()}));
  }
}

}  // namespace gradledger::megatron_fsdp
