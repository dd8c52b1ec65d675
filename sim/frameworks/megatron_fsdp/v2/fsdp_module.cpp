#include "sim/frameworks/megatron_fsdp/v2/fsdp_module.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "sim/base/overloaded.h"
#include "sim/frameworks/plain_step.h"

namespace gradledger::megatron_fsdp::v2 {

FsdpModules::FsdpModules(const EngineContext& context, const V2Config& config, const Behaviour& behaviour)
    : setup_(std::make_shared<Setup>(Setup{context, &config, behaviour, layout_of(*context.scenario, config, context.rank)})), params_(context.scenario->parameters.size()) {
  const std::vector<ParameterGroup>& all = setup().layout.groups;
  for (std::uint32_t g = 0; g < all.size(); ++g) {
    if (modules_.size() <= all[g].unit) modules_.resize(all[g].unit + 1);
    modules_[all[g].unit].laid.push_back({g, {}, no_index});
    for (std::size_t at = 0; at < all[g].parameters.size(); ++at) params_[all[g].parameters[at]] = {all[g].unit, groups_.size(), at, setup().layout.owned(all[g], at), {}, {}};
    if (!all[g].requires_grad) continue;
    modules_[all[g].unit].groups.push_back(groups_.size());
    modules_[all[g].unit].parameters += all[g].parameters.size();
    groups_.emplace_back(setup_, g);
  }
  for (std::uint32_t p = 0; p < params_.size(); ++p) optimizers_.emplace_back(setup().scenario().engine.optimizer_of(p), false);
}

void FsdpModules::initialise(ProgramWriter& w) {
  const auto buffer = [&](const std::string& name, std::uint32_t p, Dtype dtype) {
    const BufferId b = w.declare(name, dtype, params_[p].own.numel());
    w.allocate(b);
    initialise_weights(w, w.whole(b), p, params_[p].own.begin);
    return w.whole(b);
  };
  for (std::uint32_t p = 0; p < params_.size(); ++p) {
    if (params_[p].own.numel() == 0) continue;
    const std::string& name = setup().parameter(p).name;
    params_[p].weights = buffer(name, p, setup().scenario().dtype_of(p));
    if (!setup().parameter(p).has_gradient()) continue;
    if (has_main_weights(p)) params_[p].main_weights = buffer(name + ".main_weight", p, Dtype::float32);
    optimizers_[p].initialise(w, params_[p].own.numel(), "[" + name + "]");
  }
  for (FsdpParameterGroup& each : groups_) each.initialise(tensors_, w);
}

void FsdpModules::handle(const Event& event, ProgramWriter& w) {
  stepped_ = false;
  using namespace events;
  std::visit(overloaded{[&](const events::Backward& body) { backward(body, w); }, [&](const EnterNoSync&) { is_last_microbatch_ = false; },
                        [&](const ExitNoSync&) { is_last_microbatch_ = true; }, [&](const Step&) { step(w); },
                        [&](const EngineZeroGrad& body) { zero_grad(body.set_to_none, true, w); }, [&](const OptimizerZeroGrad& body) { zero_grad(body.set_to_none, false, w); },
                        [&](const ScaleGradients& body) { scale_gradients(body.by[setup().context.rank], w); }, [&](const AllReduce& body) { all_reduce(body, w); },
                        [&](const Raise& body) { raise(body); },
                        [](const one_of<OfFramework, Forward, SetBoundary, EnterCoalesce, ExitCoalesce, SetGradient, ClipGradients, Finalize, Save, Restore, Unscale> auto&) {
                          expects(false, "the second version of Megatron-FSDP is given an event that its admission refuses");
                        }},
             event.body);
}

// It leaves the block of microbatch(), which puts the flag back.
void FsdpModules::raise(const events::Raise& event) {
  is_last_microbatch_ = true;
  if (!event.caught) throw FrameworkError{"RuntimeError", "raised by the script"};
}

// ---- forward ------------------------------------------------------------------------------------------------------------------------

// What a gather brings is not modelled. That ranks meet in it is: those that call other modules wait for each other there.
void FsdpModules::unshard(std::size_t m, ProgramWriter& w) {
  Module& module = modules_[m];
  if (module.gathered()) return;
  const OnStream on(w, Stream::all_gather);
  for (Gathered& of : module.laid) {
    const ParameterGroup& group = setup().layout.groups[of.group];
    const std::string label = "[" + setup().parameter(group.parameters.front()).name + "]";
    if (!of.shard.defined()) {
      of.shard = tensors_.allocate(w, "model_weight" + label, group.dtype, Layout::share(group, setup().layout.shard.size()));
      w.fill(of.shard.slice, 0.0);
    }
    const Tensor whole = tensors_.allocate_again(w, of.before, group.dtype, group.numel, [&] { return "unsharded_model_weight" + label; });
    w.collective({.kind = CollectiveKind::all_gather, .purpose = Purpose::parameter, .group = setup().layout.shard.id, .input = of.shard.slice, .output = whole.slice});
    module.unsharded.push_back(whole);
  }
  module.unshard_event = w.record();
}

void FsdpModules::reshard(Module& module, ProgramWriter& w) {
  const std::uint32_t used = w.record();
  const OnStream on(w, Stream::all_gather);
  w.wait(used);
  for (const Tensor& whole : std::exchange(module.unsharded, {})) tensors_.drop(w, whole);
}

// A module gathers the one behind it ahead, in the order that they have in the model, whether this forward calls it or not.
void FsdpModules::pre_forward(std::size_t m, ProgramWriter& w) {
  unshard(m, w);
  w.wait(modules_[m].unshard_event);
  if (m + 1 < modules_.size()) unshard(m + 1, w);
}

// One that is in a phase of its own still is taken to compute anew, which gathers nothing ahead and keeps what is gathered.
void FsdpModules::forward(const std::vector<ModuleCall>& calls, ProgramWriter& w) {
  const auto begins = [&](std::size_t m) {
    modules_[m].ready.clear();
    if (setup().behaviour.raises_unfinished && modules_[m].unfinished) return false;
    pre_forward(m, w);
    return true;
  };
  const bool root = begins(0);
  for (const ModuleCall& call : calls)
    if (call.module != 0 && begins(call.module)) reshard(modules_[call.module], w);
  if (root) reshard(modules_[0], w);
}

// ---- backward -----------------------------------------------------------------------------------------------------------------------

// From the root to the last module, and from there to the first, each gathers the next.
void FsdpModules::pre_backward(std::size_t m, ProgramWriter& w) {
  Module& module = modules_[m];
  if (module.unfinished && setup().behaviour.raises_unfinished) throw FrameworkError{"RuntimeError", "Invalid FSDP module phase transition: Phase.BACKWARD -> Phase.BACKWARD."};
  unshard(m, w);
  w.wait(module.unshard_event);
  const std::size_t next = m == 0 ? modules_.size() - 1 : m - 1;
  if (next != 0) unshard(next, w);
  module.unfinished = module.parameters > 0;
  if (!module.unfinished) reshard(module, w);  // its backward ends here
}

void FsdpModules::backward(const events::Backward& event, ProgramWriter& w) {
  const Timeline& timeline = *setup().context.timeline;
  const std::uint32_t rank = setup().context.rank;
  const std::vector<double>& of_loop = timeline.backwards[event.ordinal].loss_factor;
  const double factor = of_loop.empty() ? 1.0 : of_loop[rank];
  const std::vector<ModuleCall> calls = forward_calls(setup().context, setup().layout, event.ordinal, setup().config->calls_unused_units);
  forward(calls, w);
  pre_backward(0, w);
  CallsBackwards backwards(calls);
  const auto begin_up_to = [&](std::uint32_t p) {
    backwards.up_to(
        p,
        [&](const ModuleCall& call) {
          if (call.module != 0 && call.reached) pre_backward(call.module, w);
        },
        [](const ModuleCall&) {});
  };
  for (const std::uint32_t p : timeline.ready_order(setup().scenario(), event.ordinal, rank)) {
    if (!setup().parameter(p).has_gradient()) continue;
    begin_up_to(p);
    Module& module = modules_[params_[p].module];
    groups_[params_[p].group].take(params_[p].at, event.ordinal, factor, tensors_, w);
    if (std::find(module.ready.begin(), module.ready.end(), p) == module.ready.end()) module.ready.push_back(p);
    if (module.ready.size() == module.parameters) post_backward(module, w);
  }
  begin_up_to(no_index);
  if (setup().behaviour.reduces_unfinished)
    for (std::size_t m = modules_.size(); m-- > 0;)
      if (!modules_[m].ready.empty()) post_backward(modules_[m], w);
  std::uint32_t reduced = no_index;
  {
    const OnStream on(w, Stream::communication);
    reduced = w.record();
  }
  w.wait(reduced);
}

void FsdpModules::post_backward(Module& module, ProgramWriter& w) {
  for (const std::size_t g : module.groups) groups_[g].reduce(is_last_microbatch_, tensors_, w);
  module.ready.clear();
  module.unfinished = false;
  reshard(module, w);
}

// ---- zero_grad and step -------------------------------------------------------------------------------------------------------------

// The optimizer knows shards. A module that is still gathered has its whole parameters, whose gradients are others.
void FsdpModules::zero_grad(bool set_to_none, bool of_module, ProgramWriter& w) {
  applied_ = false;
  for (const Module& module : modules_)
    for (const std::size_t g : module.groups) {
      const bool whole = of_module && module.gathered();
      if (whole) groups_[g].zero_unsharded(set_to_none, tensors_, w);
      if (!whole || setup().behaviour.module_zero_grad_of_shards) groups_[g].zero_sharded(set_to_none, w);
    }
}

void FsdpModules::scale_gradients(double factor, ProgramWriter& w) {
  for (const FsdpParameterGroup& each : groups_)
    if (each.has_sharded_grads()) w.multiply(each.main_grad(), factor);
}

// In the dtype of the weights; and where no backward was said to be the last of a window, as DTensor averages it over copies of a shard for the optimizer's
// arithmetic: torch/distributed/tensor/placement_types.py: Partial._reduce_value, at torch 2.13
Slice FsdpModules::for_optimizer(std::uint32_t p, std::vector<Tensor>& made, ProgramWriter& w) {
  const FsdpParameterGroup& group = groups_[params_[p].group];
  Slice grad = group.owned(params_[p].at);
  const auto copied = [&](const char* name) {
    made.push_back(tensors_.allocate(w, setup().parameter(p).name + name, Dtype::float32, grad.numel));
    w.copy(made.back().slice, grad);
    grad = made.back().slice;
  };
  if (w.declaration(grad.buffer).dtype != Dtype::float32) copied(".casted_grad");
  if (!group.is_partial()) return grad;
  copied(".averaged_grad");
  w.collective({.kind = CollectiveKind::all_reduce, .op = ReduceOp::avg, .purpose = Purpose::gradient, .group = setup().layout.outer.id, .input = grad, .output = grad});
  return grad;
}

void FsdpModules::step(ProgramWriter& w) {
  std::vector<std::pair<std::uint32_t, Slice>> given;
  std::vector<Tensor> made;
  std::vector<ViewPiece> applied;
  for (std::uint32_t p = 0; p < params_.size(); ++p) {
    if (!setup().parameter(p).has_gradient() || params_[p].own.numel() == 0 || !groups_[params_[p].group].has_sharded_grads()) continue;
    given.emplace_back(p, for_optimizer(p, made, w));
    applied.push_back(piece_of(p, given.back().second).front());
  }
  w.observe(w.view("param.grad", std::move(applied)), Role::applied_gradient, 1.0, false);
  for (const auto& [p, grad] : given) {
    optimizers_[p].begin_step();
    optimizers_[p].update(w, stepped(p), grad, 0);
    if (has_main_weights(p)) w.copy(params_[p].weights, params_[p].main_weights);
  }
  for (const Tensor& tensor : made) tensors_.drop(w, tensor);
  w.report(StepFact::updated, 1.0);
  stepped_ = applied_ = true;
}

// Of a scalar, as admission sees to it.
void FsdpModules::all_reduce(const events::AllReduce& event, ProgramWriter& w) {
  const Timeline& timeline = *setup().context.timeline;
  const ProcessGroup over = group_named(setup().scenario(), timeline.contract.groups, timeline.group_names[event.over], setup().context.rank);
  if (over.size() > 1) all_reduce_scalar(tensors_, w, over);
}

void FsdpModules::load(const Engine&) { expects(false, "the second version of Megatron-FSDP is restored, which its admission refuses"); }

// ---- snapshots ----------------------------------------------------------------------------------------------------------------------

void FsdpModules::observe(ProgramWriter& w) {
  for (const FsdpParameterGroup& each : groups_) each.observe(!applied_, w);
  if (!stepped_) return;
  for (std::uint32_t p = 0; p < params_.size(); ++p) {
    const Param& param = params_[p];
    if (!setup().parameter(p).has_gradient() || param.own.numel() == 0) continue;
    w.observe(w.view(setup().parameter(p).name, piece_of(p, param.weights)), Role::parameter, 1.0, true);
    if (has_main_weights(p)) w.observe(w.view(setup().parameter(p).name + ".main_weight", piece_of(p, param.main_weights)), Role::master_parameter, 1.0, true);
    optimizers_[p].observe(w, piece_of(p, {no_index, 0, param.own.numel()}));
  }
}

}  // namespace gradledger::megatron_fsdp::v2
