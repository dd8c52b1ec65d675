#include "sim/frameworks/torch/ddp/distributed_data_parallel.h"

#include <algorithm>
#include <utility>

#include "sim/base/overloaded.h"
#include "sim/frameworks/torch/ddp/errors.h"
#include "sim/frameworks/torch/loop_step.h"

namespace gradledger::torch {
namespace {

bool is_delayed(const DdpConfig& config, const std::string& name) {
  if (!config.delay_all_reduce) return false;
  const std::vector<std::string>& names = config.delay_all_reduce->parameters;
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::vector<std::uint32_t> reduced_parameters(const Scenario& s, const DdpConfig& config, std::uint32_t rank) {
  std::vector<std::uint32_t> out;
  for (std::uint32_t p = 0; p < s.parameters.size(); ++p)
    if (s.parameters[p].has_gradient() && holds(s, rank, p) && !is_delayed(config, s.parameters[p].name)) out.push_back(p);
  return out;
}

}  // namespace

DistributedDataParallel::DistributedDataParallel(const EngineContext& context, const DdpConfig& config)
    : context_(context), config_(&config), reducer_(context, config, reduced_parameters(*context.scenario, config, context.rank)), scaler_(config.grad_scaler) {
  for (std::uint32_t p = 0; p < parameter_count(); ++p) {
    optimizers_.emplace_back(scenario().engine.optimizer_of(p), false);
    if (!is_delayed(config, parameter(p).name) || !held(p)) continue;
    delayed_.push_back(p);
  }
  for (std::uint32_t p = 0; config.delay_all_reduce && p < parameter_count(); ++p)
    if (parameter(p).name == config.delay_all_reduce->hook && held(p)) delayed_hook_ = p;
}

void DistributedDataParallel::initialise(ProgramWriter& w) {
  const StepInBackward none;
  const Pass pass{w, gradients_, none};
  const auto buffer = [&](const std::string& name, Dtype dtype, std::uint64_t numel) {
    const BufferId b = w.declare(name, dtype, numel);
    w.allocate(b);
    return w.whole(b);
  };
  gradients_.grad.resize(parameter_count());
  gradients_.group = averaging_ranks(context_).id;
  weights_.resize(parameter_count());
  for (std::uint32_t p = 0; p < parameter_count(); ++p) {
    if (!held(p)) continue;
    weights_[p] = buffer(parameter(p).name, scenario().dtype_of(p), parameter(p).numel);
    initialise_weights(w, weights_[p], p, 0);
    if (parameter(p).has_gradient()) optimizers_[p].initialise(w, parameter(p).numel, "[" + parameter(p).name + "]");
  }
  norm_squared_ = buffer("total_norm_squared", Dtype::float64, 1);
  norm_ = buffer("total_norm", Dtype::float32, 1);
  parameter_norm_ = buffer("norm", Dtype::float32, 1);
  if (scaler_.enabled()) found_inf_ = buffer("found_inf", Dtype::uint8, 1);
  reducer_.initialise(pass);
  initialise_delayed(pass);
}

void DistributedDataParallel::handle(const Event& event, ProgramWriter& w) {
  stepped_ = false;
  // Forwards are counted from a step() on; where none is called, from the beginning.
  if (window_ != event.documented && !context_.timeline->contract.boundary.inside_backwards) {
    window_ = event.documented;
    forwards_ = 0;
    graphs_.clear();
  }
  const StepInBackward in_backward = [&](std::uint32_t p, Slice gradient) {
    observe_applied_inside(w, parameter(p).name, {gradient, static_cast<std::int32_t>(p), 0});
    update(w, p, gradient);
  };
  const Pass pass{w, gradients_, in_backward};
  using namespace events;
  std::visit(overloaded{[&](const Forward&) { explicit_forward(event, pass); }, [&](const events::Backward& body) { backward(body, pass); },
                        [&](const EnterNoSync&) { outer_blocks_.push_back(std::exchange(require_backward_grad_sync_, false)); },
                        [&](const ExitNoSync&) {
                          require_backward_grad_sync_ = outer_blocks_.back();
                          outer_blocks_.pop_back();
                        },
                        [&](const Step& body) { step(body, pass); }, [&](const EngineZeroGrad& body) { zero_grad(body.set_to_none, localized_, pass); },
                        [&](const OptimizerZeroGrad& body) { zero_grad(body.set_to_none, false, pass); }, [&](const Unscale&) { unscale(pass); },
                        [&](const ScaleGradients& body) { scale_gradients(body, pass); }, [&](const ClipGradients& body) { clip(body, pass); },
                        [&](const AllReduce& body) { all_reduce(body, pass); }, [&](const Raise& body) { raise(body); },
                        [&](const OfFramework& body) { call(body.arguments.as<data_parallel::Call>(), pass); }, [](const Save&) {},  // of the weights and what belongs to them
                        [](const one_of<SetBoundary, EnterCoalesce, ExitCoalesce, SetGradient, Finalize, Restore> auto&) {
                          expects(false, "DistributedDataParallel is given an event that its admission refuses");
                        }},
             event.body);
}

// The exception leaves every block.
void DistributedDataParallel::raise(const events::Raise& event) {
  if (!outer_blocks_.empty()) require_backward_grad_sync_ = outer_blocks_.front();
  outer_blocks_.clear();
  if (!event.caught) throw FrameworkError{"RuntimeError", "raised by the script"};
}

// ---- checkpoints ------------------------------------------------------------------------------------------------------------------

void DistributedDataParallel::load(const Engine& saved) {
  const auto& before = static_cast<const DistributedDataParallel&>(saved);
  scaler_.load(before.scaler_);
  for (std::size_t p = 0; p < optimizers_.size(); ++p) optimizers_[p].load(before.optimizers_[p]);
}

// ---- forward ----------------------------------------------------------------------------------------------------------------------

// Whether the coming backward reduces is decided here, and not where it runs.
void DistributedDataParallel::forward(const Pass& pass, std::uint32_t ordinal) {
  localized_ = has_dtensors(context_);
  reducer_.rebuild_buckets(pass);
  if (require_backward_grad_sync_) {
    std::vector<std::uint32_t> reachable;
    for (std::uint32_t p = 0; p < parameter_count(); ++p) {
      // A loop keeps its term, as a router's loss, and adds it behind the forward. One that prepares the reducer itself does so with the loss.
      if (parameter(p).hooked_outputs == 0 && !config_->backward_in_forward) continue;
      const bool held = parameter(p).has_gradient() && context_.timeline->contract.holds(context_.rank, p);
      if (ordinal == no_index ? held : context_.timeline->in_graph(scenario(), ordinal, context_.rank, p)) reachable.push_back(p);
    }
    reducer_.prepare_for_backward(reachable);
  }
  clear_grad_buffer(pass);
}

// A loss of nothing but terms that a loop adds behind the forward goes around what wraps the outputs.
bool DistributedDataParallel::starts_from_outputs(const events::Backward& event) const {
  const std::uint32_t first = event.own_forward ? event.ordinal : graphs_.at(event.of).ordinal;
  for (std::uint32_t i = 0; i < event.summed; ++i) {
    const std::vector<std::uint32_t> uses = context_.timeline->ready_order(scenario(), first + i, context_.rank);
    if (uses.empty() || std::any_of(uses.begin(), uses.end(), [&](std::uint32_t use) { return parameter(use).hooked_outputs > 0; })) return true;
  }
  return false;
}

void DistributedDataParallel::explicit_forward(const Event& event, const Pass& pass) {
  const auto number = static_cast<std::uint32_t>(&event - context_.timeline->events.data());
  graphs_[forwards_++].through_sink = passes_sink();
  forward(pass, backward_of_forward(number));
}

// The outputs of a forward are what its backward starts from: which parameters they reach is known once it is. Without one they reach all.
std::uint32_t DistributedDataParallel::backward_of_forward(std::uint32_t forward) const {
  const std::vector<Event>& all = context_.timeline->events;
  for (std::size_t i = forward + 1; i < all.size() && all[i].documented == all[forward].documented; ++i)
    if (const auto* body = all[i].as<events::Backward>(); body && !body->own_forward && body->of + 1 == forwards_ && all[i].runs_on(context_.rank)) return body->ordinal;
  return no_index;
}

// ---- backward ---------------------------------------------------------------------------------------------------------------------

void DistributedDataParallel::backward(const events::Backward& event, const Pass& pass) {
  bool through_sink = passes_sink();
  if (!event.own_forward) {
    Graph& graph = graphs_[event.of];
    through_sink = graph.through_sink;
    if (graph.ordinal == no_index) graph.ordinal = event.ordinal;
  }
  for (std::uint32_t i = 0; event.own_forward && i < event.summed; ++i) forward(pass, event.ordinal + i);
  reducer_.drop_callbacks();
  gradient_scale_ = event.past_scaler ? 1.0 : scaler_.scale_loss();
  through_sink = through_sink && starts_from_outputs(event);
  // The sink is the last node of the forward and the first of the backward; whoever comes second finds it done.
  delay_queued_ = through_sink && !std::exchange(delay_enqueued_, delay_enqueued_ || through_sink);
  autograd(event, pass);
  if (std::exchange(delay_queued_, false)) reducer_.delay_all_reduce(pass);
  if (reducer_.optimizer_ran()) {
    // All gradients of its parameters are given up, before the reducer would copy into them.
    for (Tensor& grad : gradients_.grad) gradients_.tensors.clear(pass.w, grad);
    stepped_ = true;
  }
  if (stepped_) pass.w.report(StepFact::updated, 1.0);
  if (reducer_.finalize_queued()) end_of_backward(pass, reducer_.finalize_backward(pass));
}

void DistributedDataParallel::call(const data_parallel::Call& call, const Pass& pass) {
  if (call.method == data_parallel::Method::finalize_backward) return end_of_backward(pass, reducer_.finalize_backward_manual(pass));
  reducer_.set_manual_finalization_required(call.value);
}

void DistributedDataParallel::end_of_backward(const Pass& pass, std::optional<Slice> question) {
  if (question) read(pass.w, Stage::parameter_used, *question);
}

void DistributedDataParallel::autograd(const events::Backward& event, const Pass& pass) {
  const Timeline& timeline = *context_.timeline;
  // The graph is the forward's, whatever a later backward of it says.
  const std::uint32_t first = event.own_forward ? event.ordinal : graphs_[event.of].ordinal;
  // Of several forwards the nodes of the last were made last, and come first. A gradient is whole in the graph of the first that uses the parameter.
  std::vector<std::uint32_t> ready;  // the other way round: each graph from its end, and the first graph first
  std::vector<bool> placed(parameter_count());
  for (std::uint32_t i = 0; i < event.summed; ++i) {
    const std::vector<std::uint32_t> of_graph = timeline.ready_order(scenario(), first + i, context_.rank);
    for (auto p = of_graph.rbegin(); p != of_graph.rend(); ++p) {
      if (placed[*p] || (!event.own_forward && !timeline.used(scenario(), event.ordinal, context_.rank, *p))) continue;
      placed[*p] = true;
      ready.push_back(*p);
    }
  }
  std::reverse(ready.begin(), ready.end());
  put_dtensors_last(context_, *config_, ready);
  std::uint32_t done = 0;
  for (const std::uint32_t p : ready) {
    if (event.raises_after && done++ == *event.raises_after) break;
    // Autograd never comes back to a DTensor behind an exception.
    if (event.raises_after && localized_ && !config_->is_plain(parameter(p).name)) continue;
    accumulate_grad(event, pass, p);
  }
  if (event.raises_after) throw FrameworkError{"RuntimeError", "raised by the script in a backward"};
}

// Autograd adds up the gradients of all uses before AccumulateGrad sees them; the reducer's hook runs once, behind it.
void DistributedDataParallel::accumulate_grad(const events::Backward& event, const Pass& pass, std::uint32_t p) {
  if (p == delayed_hook_) reduce_delayed(pass);
  std::vector<std::uint32_t> terms;
  for (std::uint32_t i = event.summed; i-- > 0;)
    if (context_.timeline->used(scenario(), event.ordinal + i, context_.rank, p)) terms.push_back(event.ordinal + i);
  Tensor& grad = gradients_.grad[p];
  const bool defined = grad.defined();
  if (!defined) make_gradient(pass, p);
  // A hook may have left a gradient in another dtype: what is added to it keeps its own until then.
  const bool same_dtype = pass.w.declaration(gradients_.grad[p].slice.buffer).dtype == scenario().dtype_of(p);
  if (!defined || (terms.size() == 1 && same_dtype)) {
    deposit(pass, grad.slice, terms, p, defined);
  } else {
    Tensor sum = gradients_.tensors.allocate(pass.w, parameter(p).name + ".grad of a sum", scenario().dtype_of(p), parameter(p).numel);
    deposit(pass, sum.slice, terms, p, false);
    pass.w.accumulate(grad.slice, sum.slice);
    gradients_.tensors.drop(pass.w, sum);
  }
  // The wrapper takes the optimizers' own hooks away from parameters that it reduces, and from no other: one that is delayed is stepped at once.
  if (config_->post_accumulate_grad_hook || (config_->optimizer_in_backward && !reducer_.manages(p))) {
    pass.step(p, grad.slice);
    gradients_.tensors.clear(pass.w, grad);
    stepped_ = true;
  }
  if (reducer_.manages(p)) reducer_.autograd_hook(pass, p, event.ordinal);
}

void DistributedDataParallel::deposit(const Pass& pass, Slice target, const std::vector<std::uint32_t>& terms, std::uint32_t p, bool add) {
  if (sums_parts(p)) return deposit_part(pass, target, terms, p, add);
  for (std::size_t i = 0; i < terms.size(); ++i) deposit_own(pass, target, terms[i], p, add || i > 0);
}

// A layout's tensor-parallel ranks each compute a part of the gradient. A DTensor's is added up over them before autograd sees it, once in each backward: all
// forwards of a sum of losses have the one DTensor that the wrapper made for the first forward.
void DistributedDataParallel::deposit_part(const Pass& pass, Slice target, const std::vector<std::uint32_t>& terms, std::uint32_t p, bool add) {
  const Tensor part = gradients_.tensors.allocate(pass.w, parameter(p).name + ".grad redistributed", scenario().dtype_of(p), target.numel);
  for (std::size_t i = 0; i < terms.size(); ++i) deposit_own(pass, part.slice, terms[i], p, i > 0);
  pass.w.collective({.group = group_named(scenario(), context_.timeline->contract.groups, "tp", context_.rank).id, .input = part.slice, .output = part.slice});
  if (add) pass.w.accumulate(target, part.slice);
  else pass.w.copy(target, part.slice);
  gradients_.tensors.drop(pass.w, part);
}

void DistributedDataParallel::deposit_own(const Pass& pass, Slice target, std::uint32_t ordinal, std::uint32_t p, bool add) {
  const std::vector<double>& of_loop = context_.timeline->backwards[ordinal].loss_factor;
  pass.w.deposit(target, ordinal, p, 0, gradient_scale_ * (of_loop.empty() ? 1.0 : of_loop[context_.rank]), add);
}

void DistributedDataParallel::make_gradient(const Pass& pass, std::uint32_t p) {
  gradients_.grad[p] = gradients_.tensors.allocate(pass.w, parameter(p).name + ".grad", scenario().dtype_of(p), parameter(p).numel);
}

void DistributedDataParallel::resume(double value, ProgramWriter& w) {
  expects(suspended(), "an engine is resumed that waits for nothing");
  const StepInBackward none;
  const Pass pass{w, gradients_, none};
  switch (*std::exchange(pending_, std::nullopt)) {
    case Stage::parameter_used: return end_of_backward(pass, reducer_.finalize_goes_on(pass, value != 0));
    case Stage::found_inf: return scaler_update(value != 0, pass);
    case Stage::clip_norm: return clip_by(value, pass);
  }
}

void DistributedDataParallel::read(ProgramWriter& w, Stage stage, Slice scalar) {
  w.read(scalar, static_cast<std::uint32_t>(stage));
  pending_ = stage;
}

// ---- snapshots --------------------------------------------------------------------------------------------------------------------

void DistributedDataParallel::observe(ProgramWriter& w) {
  const auto whole = [](std::uint32_t p, Slice slice) { return std::vector<ViewPiece>{{slice, static_cast<std::int32_t>(p), 0}}; };
  for (std::uint32_t p = 0; p < parameter_count(); ++p)
    if (const Tensor& grad = gradients_.grad[p]; grad.defined())
      w.observe(w.view(parameter(p).name + ".grad", whole(p, grad.slice)), Role::replicated_accumulator, gradient_scale_, true);
  if (!stepped_) return;
  for (std::uint32_t p = 0; p < parameter_count(); ++p) {
    if (!parameter(p).has_gradient() || !held(p)) continue;
    w.observe(w.view(parameter(p).name, whole(p, weights_[p])), Role::parameter, 1.0, true);
    optimizers_[p].observe(w, {{{no_index, 0, parameter(p).numel}, static_cast<std::int32_t>(p), 0}});
  }
}

}  // namespace gradledger::torch
