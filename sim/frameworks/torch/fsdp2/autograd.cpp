// A forward calls modules, whose hooks leave nodes in its graph; a backward visits them from the last.
#include <algorithm>
#include <iterator>
#include <utility>

#include "sim/frameworks/torch/fsdp2/errors.h"
#include "sim/frameworks/torch/fsdp2/fsdp_module.h"

namespace gradledger::torch::fully_shard {

// ---- forward ----------------------------------------------------------------------------------------------------------------------

// The first module that runs becomes the root. In training its parameters would be gathered again at once.
void FsdpModule::lazy_init() {
  if (is_lazily_initialised_) return;
  if (!finalized_by_hand_below_the_root_.empty()) throw not_on_the_root("set_manual_backward_finalization");
  is_lazily_initialised_ = true;
  if (root_keeps_parameters_) group(0).reshard_after_forward = false;
}

bool FsdpModule::uses(std::uint32_t ordinal, std::uint32_t p) const {
  return ordinal == no_index ? parameter(p).has_gradient() : context_.timeline->in_graph(scenario(), ordinal, context_.rank, p);
}

bool FsdpModule::calls(const Stretch& stretch, std::uint32_t ordinal) const {
  return stretch.module == 0 || config_->calls_unused_units || std::any_of(stretch.parameters.begin(), stretch.parameters.end(), [&](std::uint32_t p) { return uses(ordinal, p); });
}

FsdpModule::Graph FsdpModule::forward(const Pass& pass, std::uint32_t ordinal) {
  Graph graph;
  bool requires_grad = config_->input_requires_grad;
  pre_forward(0, requires_grad, pass, graph);
  for (const Stretch& stretch : shared_.modules.order) {
    if (!calls(stretch, ordinal)) continue;
    if (stretch.module != 0) pre_forward(stretch.module, requires_grad, pass, graph);
    for (const std::uint32_t p : stretch.parameters) {
      if (!uses(ordinal, p)) continue;
      if (shared_.behaviour.aborted_module == AbortedModule::raises && !group(stretch.module).is_unsharded()) throw used_while_sharded();
      graph.push_back({Node::Kind::gradient, p});
      requires_grad = true;
    }
    if (stretch.module != 0) post_forward(stretch.module, requires_grad, pass, graph);
  }
  post_forward(0, true, pass, graph);  // a model that uses nothing returns what its input was, so that there is a backward
  return graph;
}

// A module that an aborted backward left in PRE_BACKWARD takes this forward for the recomputation of checkpointed activations: it registers nothing.
void FsdpModule::pre_forward(std::uint32_t module, bool input_requires_grad, const Pass& pass, Graph& graph) {
  if (reduction_ == Reduction::pending) throw not_waited_for("forward");
  ParamGroup& g = group(module);
  if (states_[module] == TrainingState::pre_backward) {
    if (g.empty() || g.is_unsharded() || shared_.behaviour.aborted_module == AbortedModule::raises) return;
    g.unshard(pass);
    return g.wait_for_unshard(pass);
  }
  states_[module] = TrainingState::forward;
  lazy_init();
  if (!iter_forward_root_) {
    iter_forward_root_ = module;
    wait_stream(pass.w, Stream::copy, Stream::compute);
    wait_stream(pass.w, Stream::all_gather, Stream::compute);
  }
  if (g.empty()) return;
  const bool enters = g.training_state != TrainingState::forward;
  g.pre_forward(pass);
  if (enters && input_requires_grad) graph.push_back({Node::Kind::post_backward, module});
}

void FsdpModule::post_forward(std::uint32_t module, bool output_requires_grad, const Pass& pass, Graph& graph) {
  if (states_[module] == TrainingState::pre_backward) return;
  if (!group(module).empty()) group(module).post_forward(pass);
  if (output_requires_grad) {
    // Hooks of one tensor run in the order of their registration: what a module returns as another returned it to it is the same tensor.
    auto at = graph.end();
    while (at != graph.begin() && std::prev(at)->kind == Node::Kind::pre_backward) --at;
    graph.insert(at, {Node::Kind::pre_backward, module});
  }
  states_[module] = TrainingState::idle;
  if (iter_forward_root_ != module) return;
  iter_forward_root_.reset();
  if (!shared_.comm.all_gather_state) return;
  const Kept kept = *std::exchange(shared_.comm.all_gather_state, std::nullopt);
  for (const Stream stream : {Stream::all_gather, Stream::copy}) {
    OnStream on(pass.w, stream);
    pass.w.wait(kept.event);
    if (stream == Stream::copy) shared_.tensors.drop(pass.w, kept.tensor);
  }
}

void FsdpModule::explicit_forward(const Event& event, const Pass& pass) {
  const auto number = static_cast<std::uint32_t>(&event - context_.timeline->events.data());
  const std::uint32_t mine = forwards_++;
  graphs_[mine] = forward(pass, backward_of_forward(number));
}

// Which parameters a forward uses is known from its backward.
std::uint32_t FsdpModule::backward_of_forward(std::uint32_t forward) const {
  const std::vector<Event>& all = context_.timeline->events;
  for (std::size_t i = forward + 1; i < all.size() && all[i].documented == all[forward].documented; ++i)
    if (const auto* body = all[i].as<events::Backward>(); body && !body->own_forward && body->of + 1 == forwards_ && all[i].runs_on(context_.rank)) return body->ordinal;
  return no_index;
}

// ---- backward ---------------------------------------------------------------------------------------------------------------------

void FsdpModule::backward(const events::Backward& event, const Pass& pass) {
  std::vector<Graph> graphs;
  if (event.own_forward)
    for (std::uint32_t i = 0; i < event.summed; ++i) graphs.push_back(forward(pass, event.ordinal + i));
  else graphs.push_back(graphs_[event.of]);
  final_callback_of_this_backward_ = false;
  backward_scale_ = gradient_scale_ = event.past_scaler ? 1.0 : scaler_.scale_loss();
  Walk walk{event, event.summed};
  // The nodes of the last forward were made last, and come first.
  for (auto i = static_cast<std::uint32_t>(graphs.size()); i-- > 0;) autograd(graphs[i], i, walk, pass);
  if (event.raises_after) throw FrameworkError{"RuntimeError", "raised by the script in a backward"};
  if (final_callback_of_this_backward_) root_post_backward_final_callback(pass);
  if (stepped_) pass.w.report(StepFact::updated, 1.0);
}

void FsdpModule::autograd(const Graph& graph, std::uint32_t number, Walk& walk, const Pass& pass) {
  for (auto node = graph.rbegin(); node != graph.rend(); ++node) {
    switch (node->kind) {
      case Node::Kind::pre_backward: pre_backward(node->of, pass); break;
      case Node::Kind::post_backward: group(node->of).post_backward(pass); break;
      case Node::Kind::gradient:
        if (walk.event.raises_after && walk.gradients++ == *walk.event.raises_after) throw FrameworkError{"RuntimeError", "raised by the script in a backward"};
        accumulate_grad(node->of, number, walk, pass);
        break;
    }
  }
}

// Autograd adds up the gradients of all uses before AccumulateGrad sees them: in the graph of the first forward that uses the parameter.
void FsdpModule::accumulate_grad(std::uint32_t p, std::uint32_t number, const Walk& walk, const Pass& pass) {
  const std::uint32_t first = walk.event.ordinal;
  for (std::uint32_t i = 0; i < number; ++i)
    if (uses(first + i, p)) return;
  std::vector<std::uint32_t> terms;
  for (std::uint32_t i = walk.graphs; i-- > 0;)
    if (uses(first + i, p)) terms.push_back(first + i);
  FsdpParam& of = param(p);
  const Dtype computed = of.computed(), handed = of.handed_to_the_leaf();
  const std::string& name = parameter(p).name;
  const bool defined = of.unsharded_grad.defined();
  const bool adds_in_place = defined && terms.size() == 1 && pass.w.declaration(of.unsharded_grad.slice.buffer).dtype == computed && handed == computed;
  Tensor sum = of.unsharded_grad;
  if (!defined) sum = shared_.tensors.allocate_again(pass.w, of.grad_before, handed, parameter(p).numel, [&] { return name + ".unsharded_param.grad"; });
  else if (!adds_in_place) sum = shared_.tensors.allocate(pass.w, name + ".unsharded_param.grad of a sum", handed, parameter(p).numel);
  for (std::size_t i = 0; i < terms.size(); ++i) {
    const bool adds = adds_in_place || i > 0;
    if (handed == computed) {
      deposit(pass, sum.slice, terms[i], p, adds);
      continue;
    }
    const Tensor made = shared_.tensors.allocate(pass.w, name + ".unsharded_param.grad of a forward", computed, parameter(p).numel);
    deposit(pass, made.slice, terms[i], p, false);
    if (adds) add_in_place(pass, sum.slice, made.slice, name + ".unsharded_param.grad");
    else if (made.numel() > 0) pass.w.copy(sum.slice, made.slice);
    shared_.tensors.drop(pass.w, made);
  }
  if (!defined) of.unsharded_grad = sum;
  if (!defined || adds_in_place) return;
  add_in_place(pass, of.unsharded_grad.slice, sum.slice, name + ".unsharded_param.grad");
  shared_.tensors.drop(pass.w, sum);
}

void FsdpModule::deposit(const Pass& pass, Slice target, std::uint32_t ordinal, std::uint32_t p, bool add) {
  const std::vector<double>& of_loop = context_.timeline->backwards[ordinal].loss_factor;
  if (target.numel > 0) pass.w.deposit(target, ordinal, p, 0, backward_scale_ * (of_loop.empty() ? 1.0 : of_loop[context_.rank]), add);
}

}  // namespace gradledger::torch::fully_shard
