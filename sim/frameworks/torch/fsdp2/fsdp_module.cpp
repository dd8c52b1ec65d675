// The module: what it is made of, events, methods, snapshots. Forward and backward are in autograd.cpp, the loop's own part in step.cpp.
#include "sim/frameworks/torch/fsdp2/fsdp_module.h"

#include <algorithm>
#include <utility>

#include "sim/base/overloaded.h"
#include "sim/frameworks/torch/fsdp2/errors.h"
#include "sim/frameworks/torch/loop_step.h"

namespace gradledger::torch::fully_shard {

FsdpModule::FsdpModule(const EngineContext& context, const Fsdp2Config& config, const Behaviour& behaviour)
    : context_(context),
      config_(&config),
      scaler_(config.grad_scaler),
      root_keeps_parameters_(!config.reshard_after_forward || behaviour.root_after_forward == RootAfterForward::gathered) {
  shared_.context = context;
  shared_.config = &config;
  shared_.behaviour = behaviour;
  shared_.modules = modules_of(scenario(), config, context.rank);
  states_.resize(shared_.modules.parameters.size(), TrainingState::idle);
  shared_.groups.reserve(states_.size());
  shared_.params.reserve(parameter_count());
  optimizers_.reserve(parameter_count());
  for (std::uint32_t m = 0; m < states_.size(); ++m) shared_.groups.emplace_back(m, shared_.modules.parameters[m], config.reshard_after_forward.value_or(true), config);
  for (std::uint32_t p = 0; p < parameter_count(); ++p) {
    optimizers_.emplace_back(scenario().engine.optimizer_of(p), false);
    FsdpParam& made = shared_.params.emplace_back();
    made.orig_dtype = scenario().dtype_of(p);
    const MixedPrecision& given = config.mixed_precision;
    if (given.reduce_dtype != given.param_dtype) made.reduce_dtype = given.reduce_dtype;
    if (const Dtype computed = given.computed(parameter(p).name, made.orig_dtype); computed != made.orig_dtype) made.param_dtype = computed;
    made.sharded_grad_dtype = made.orig_dtype;
    const bool somewhere_else = given.param_dtype || given.reduce_dtype || config.grad_dtype;  // gradients of one dtype otherwise, in every release
    if (!somewhere_else || behaviour.gradient_dtype == GradientDtype::of_computation) continue;
    made.sharded_grad_dtype = config.grad_dtype.value_or(made.orig_dtype);
    made.leaf_grad_dtype = given.reduce_dtype.value_or(made.sharded_grad_dtype);
    // What tensor-parallel ranks may have parts of is added up over them before the reduction, in the wider dtype.
    made.leaf_is_wider = size_of(*made.leaf_grad_dtype) > size_of(made.computed()) && shared_.modules.placements[p] != Placement::replicate;
  }
}

void FsdpModule::initialise(ProgramWriter& w) {
  const auto buffer = [&](const std::string& name, Dtype dtype, std::uint64_t numel) {
    const BufferId b = w.declare(name, dtype, numel);
    w.allocate(b);
    return w.whole(b);
  };
  const std::uint32_t chunk = shared_.chunk();
  for (std::uint32_t p = 0; p < parameter_count(); ++p) {
    if (!shared_.modules.held[p]) continue;
    const Cut& cut = shared_.modules.cuts[p];
    const std::uint64_t own = cut.numel(chunk);
    const Tensor padded = shared_.tensors.allocate(w, parameter(p).name, scenario().dtype_of(p), cut.padded_numel(), config_->offload ? MemorySpace::host : MemorySpace::device);
    param(p).sharded = padded;
    initialise_weights(w, padded.slice.part(0, own), p, cut.offset(chunk));
    if (own < cut.padded_numel()) w.fill(padded.slice.part(own, cut.padded_numel() - own), 0.0);
    if (parameter(p).has_gradient()) optimizers_[p].initialise(w, own, "[" + parameter(p).name + "]");
  }
  norm_squared_ = buffer("total_norm_squared", Dtype::float64, 1);
  norm_ = buffer("total_norm", Dtype::float32, 1);
  one_ = buffer("norm", Dtype::float32, 1);
  norms_ = buffer("norms", Dtype::float32, parameter_count());
  if (scaler_.enabled()) found_inf_ = buffer("found_inf", Dtype::uint8, 1);
  if (config_->offload) w.host_waits();  // the host clips and steps, before a backward too
}

void FsdpModule::handle(const Event& event, ProgramWriter& w) {
  stepped_ = false;
  // Forwards are counted from a step() on; where none is called, from the beginning.
  if (window_ != event.documented && !context_.timeline->contract.boundary.inside_backwards) {
    window_ = event.documented;
    forwards_ = 0;
    graphs_.clear();
  }
  const StepInBackward in_backward = [&](std::uint32_t p) {
    if (const Slice gradient = param(p).sharded_grad.slice; gradient.numel > 0) observe_applied_inside(w, parameter(p).name, piece_of(p, gradient).front());
    update(w, p);
    stepped_ = true;
  };
  const Pass pass{w, shared_, in_backward};
  using namespace events;
  std::visit(
      overloaded{[&](const Forward&) { explicit_forward(event, pass); }, [&](const events::Backward& body) { backward(body, pass); },
                 [&](const EnterNoSync&) { in_no_sync_ = true, set_requires_gradient_sync(false); },
                 [&](const ExitNoSync&) { in_no_sync_ = false, set_requires_gradient_sync(true); }, [&](const OfFramework& body) { call(body.arguments.as<Call>(), pass); },
                 [&](const Step& body) { step(body, pass); }, [&](const EngineZeroGrad& body) { zero_grad(body.set_to_none, true, pass); },
                 [&](const OptimizerZeroGrad& body) { zero_grad(body.set_to_none, false, pass); }, [&](const Unscale&) { unscale(pass); },
                 [&](const ScaleGradients& body) { scale_gradients(body, pass); }, [&](const ClipGradients& body) { clip(body, pass); },
                 [&](const AllReduce& body) { all_reduce(body, pass); }, [&](const Raise& body) { raise(body); }, [](const Save&) {},  // of the weights and what belongs to them
                 [](const one_of<SetBoundary, EnterCoalesce, ExitCoalesce, SetGradient, Finalize, Restore> auto&) {
                   expects(false, "fully_shard is given an event that its admission refuses");
                 }},
      event.body);
}

// The block that the loop made of the switch puts it back.
void FsdpModule::raise(const events::Raise& event) {
  if (std::exchange(in_no_sync_, false)) set_requires_gradient_sync(true);
  if (!event.caught) throw FrameworkError{"RuntimeError", "raised by the script"};
}

// ---- methods ----------------------------------------------------------------------------------------------------------------------

void FsdpModule::set_requires_gradient_sync(bool value) {
  Call call;
  call.method = Method::set_requires_gradient_sync;
  call.value = value;
  set(call);
}

void FsdpModule::call(const Call& call, const Pass& pass) {
  const std::uint32_t module = call.unit ? *call.unit + 1 : 0;
  switch (call.method) {
    case Method::set_manual_backward_finalization: return set_manual_backward_finalization(call);
    case Method::reset_iter_state: return reset_iter_state(call, pass);
    case Method::finalize_backward: return finalize_backward(call, pass);
    case Method::wait_for_gradient_reduction: return wait_for_gradient_reduction(pass);
    default: break;
  }
  if (is_setter(call.method)) return set(call);
  if (group(module).empty()) return;
  if (call.method == Method::reshard) return group(module).reshard(pass);
  group(module).unshard(pass);
  group(module).wait_for_unshard(pass);
}

void FsdpModule::set(const Call& call) {
  const std::uint32_t module = call.unit ? *call.unit + 1 : 0;
  for (std::uint32_t m = 0; m < states_.size(); ++m) {
    if (m != module && (module != 0 || !call.recurse)) continue;
    ParamGroup& g = group(m);
    switch (call.method) {
      case Method::set_requires_gradient_sync: g.reduce_grads = g.all_reduce_grads = call.flag(); break;
      case Method::set_requires_all_reduce: g.all_reduce_grads = call.flag(); break;
      case Method::set_is_last_backward: shared_.comm.is_last_backward = call.flag(); break;
      case Method::set_reshard_after_forward: g.reshard_after_forward = call.flag(); break;
      case Method::set_reshard_after_backward: g.reshard_after_backward = call.flag(); break;
      case Method::set_reduce_scatter_unused_params: g.reduce_scatter_unused_params = call.flag(); break;
      case Method::set_force_sum_reduction_for_comms: g.force_sum_reduction_for_comms = call.flag(); break;
      case Method::set_gradient_divide_factor: g.gradient_divide_factor = call.value; break;
      default: expects(false, "a method is set that takes no value, or is not one of each module");
    }
  }
  if (call.method == Method::set_reshard_after_forward && module == 0) root_keeps_parameters_ = false;
}

void FsdpModule::reset_iter_state(const Call& call, const Pass& pass) {
  if (!is_lazily_initialised_) throw not_used_yet();
  if (call.unit) throw not_on_the_root("reset_iter_state");
  Communication& comm = shared_.comm;
  const auto let_go = [&](const Kept& kept) {
    pass.w.wait(kept.event);
    shared_.tensors.drop(pass.w, kept.tensor);
  };
  if (comm.all_gather_state) let_go(*std::exchange(comm.all_gather_state, std::nullopt));
  for (const Kept& kept : std::exchange(comm.reduce_scatter_states, {})) let_go(kept);
  for (const auto& [stream, event] : std::exchange(comm.last_post_reduce_events, {})) pass.w.wait(event);
  comm.post_forward_order.clear();
  for (std::uint32_t m = 0; m < states_.size(); ++m) {
    states_[m] = TrainingState::idle;
    if (!group(m).empty()) group(m).reset_iter_state(pass);
  }
  iter_forward_root_.reset();
  final_callback_queued_ = false;
  manual_finalization_active_.reset();
  if (reduction_ == Reduction::pending) reduction_ = Reduction::invalidated;
}

// ---- values that decide -------------------------------------------------------------------------------------------------------------

void FsdpModule::resume(double value, ProgramWriter& w) {
  expects(suspended(), "an engine is resumed that waits for nothing");
  const StepInBackward none;
  const Pass pass{w, shared_, none};
  switch (*std::exchange(pending_, std::nullopt)) {
    case Stage::found_inf: return scaler_update(value != 0, pass);
    case Stage::clip_norm: return clip_by(value, pass);
  }
}

void FsdpModule::read(ProgramWriter& w, Stage stage, Slice scalar) {
  w.read(scalar, static_cast<std::uint32_t>(stage));
  pending_ = stage;
}

// ---- checkpoints ------------------------------------------------------------------------------------------------------------------

void FsdpModule::load(const Engine& saved) {
  const auto& before = static_cast<const FsdpModule&>(saved);
  scaler_.load(before.scaler_);
  for (std::size_t p = 0; p < optimizers_.size(); ++p) optimizers_[p].load(before.optimizers_[p]);
}

// ---- snapshots --------------------------------------------------------------------------------------------------------------------

std::vector<ViewPiece> FsdpModule::piece_of(std::uint32_t p, Slice slice) const { return {{slice, static_cast<std::int32_t>(p), shared_.modules.cuts[p].offset(shared_.chunk())}}; }

void FsdpModule::observe(ProgramWriter& w) {
  const auto whole = [](std::uint32_t p, Slice slice) { return std::vector<ViewPiece>{{slice, static_cast<std::int32_t>(p), 0}}; };
  for (std::uint32_t p = 0; p < parameter_count(); ++p) {
    const FsdpParam& of = param(p);
    const std::string& name = parameter(p).name;
    if (of.unsharded_grad.defined()) w.observe(w.view(name + ".unsharded_param.grad", whole(p, of.unsharded_grad.slice)), Role::local_accumulator, backward_scale_, true);
    if (of.unsharded_accumulated_grad.defined())
      w.observe(w.view(name + ".unsharded_accumulated_grad", whole(p, of.unsharded_accumulated_grad.slice)), Role::local_accumulator, backward_scale_, true);
    if (of.sharded_grad.defined()) w.observe(w.view(name + ".grad", piece_of(p, of.sharded_grad.slice)), Role::reduced_accumulator, gradient_scale_, true);
  }
  for (std::uint32_t m = 0; m < states_.size(); ++m)
    if (const Tensor& partial = group(m).partial_reduce_output(); partial.defined())
      w.observe(w.view(group(m).label(shared_, "_partial_reduce_output"), {{partial.slice, -1, 0}}), Role::scratch, backward_scale_, true);
  if (!stepped_) return;
  for (std::uint32_t p = 0; p < parameter_count(); ++p) {
    if (!parameter(p).has_gradient() || !shared_.modules.held[p]) continue;
    const std::uint64_t own = shared_.modules.cuts[p].numel(shared_.chunk());
    w.observe(w.view(parameter(p).name, piece_of(p, param(p).sharded.slice.part(0, own))), Role::parameter, 1.0, true);
    optimizers_[p].observe(w, piece_of(p, {no_index, 0, own}));
  }
}

}  // namespace gradledger::torch::fully_shard
