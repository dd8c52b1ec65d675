// A forward calls modules, whose hooks gather weights and leave nodes in its graph.
#include <algorithm>
#include <iterator>
#include <utility>

#include "sim/frameworks/torch/fsdp1/errors.h"
#include "sim/frameworks/torch/fsdp1/fully_sharded.h"

namespace gradledger::torch::flat_sharded {

// ---- gathering --------------------------------------------------------------------------------------------------------------------

void unshard(std::uint32_t module, const Pass& pass) {
  FlatParamHandle& h = pass.s.handles[module];
  bool ran = false;
  const Stream before = pass.s.config->computes_on_cpu ? Stream::compute : Stream::copy;  // a CPU has no second stream
  {
    OnStream on(pass.w, before);
    ran = h.pre_unshard(pass);
  }
  if (ran) wait_stream(pass.w, Stream::all_gather, before);
  OnStream on(pass.w, Stream::all_gather);
  h.unshard(pass);
  h.post_unshard(pass);
}

void reshard(std::uint32_t module, bool free_unsharded, const Pass& pass) {
  FlatParamHandle& h = pass.s.handles[module];
  h.reshard(pass, free_unsharded);
  h.post_reshard(pass);
  h.prefetched = false;
}

// As the training state would be where the target's own turn came.
void prefetch_forward(std::uint32_t module, std::size_t nodes, const Pass& pass) {
  FlatParamHandle& h = pass.s.handles[module];
  if (h.training_state != HandleTrainingState::forward || !pass.s.config->forward_prefetch || !h.pre_forward_order_index) return;
  if (*h.pre_forward_order_index + 1 >= pass.s.pre_forward_order.size()) return;
  FlatParamHandle& target = pass.s.handles[pass.s.pre_forward_order[*h.pre_forward_order_index + 1]];
  if (!target.needs_pre_forward_unshard || target.prefetched) return;
  target.views_made_at = nodes;
  const HandleTrainingState before = std::exchange(target.training_state, HandleTrainingState::forward);
  unshard(pass.s.pre_forward_order[*h.pre_forward_order_index + 1], pass);
  target.training_state = before;
  target.prefetched = true;
}

void prefetch_backward(std::uint32_t module, const Pass& pass) {
  FlatParamHandle& h = pass.s.handles[module];
  const BackwardPrefetch when = pass.s.config->backward_prefetch;
  const bool now = (h.training_state == HandleTrainingState::backward_pre && when == BackwardPrefetch::pre) ||
                   (h.training_state == HandleTrainingState::backward_post && when == BackwardPrefetch::post);
  if (!now || h.post_forward_index.value_or(0) == 0) return;
  // A backward that was over in between has cleared the order.
  if (*h.post_forward_index - 1 >= pass.s.post_forward_order.size()) throw FrameworkError{"IndexError", "list index out of range"};
  const std::uint32_t number = pass.s.post_forward_order[*h.post_forward_index - 1];
  FlatParamHandle& target = pass.s.handles[number];
  if (!target.needs_pre_backward_unshard || target.prefetched) return;
  const HandleTrainingState before = std::exchange(target.training_state, HandleTrainingState::backward_pre);
  unshard(number, pass);
  target.training_state = before;
  target.prefetched = true;
}

// ---- forward ----------------------------------------------------------------------------------------------------------------------

void FullyShardedDataParallel::lazy_init(const Pass& pass) {
  if (std::exchange(is_lazily_initialised_, true)) return;
  for (FlatParamHandle& h : shared_.handles)
    if (!h.empty()) h.init_flat_param_attributes(pass);
}

bool FullyShardedDataParallel::uses(std::uint32_t ordinal, std::uint32_t p) const {
  return ordinal == no_index ? parameter(p).has_gradient() : context_.timeline->in_graph(scenario(), ordinal, context_.rank, p);
}

bool FullyShardedDataParallel::uses_module(std::uint32_t ordinal, std::uint32_t module) const {
  const std::vector<Part>& parts = shared_.modules.layouts[module].parts;
  return std::any_of(parts.begin(), parts.end(), [&](const Part& part) { return uses(ordinal, part.parameter); });
}

bool FullyShardedDataParallel::calls(const Stretch& stretch, std::uint32_t ordinal) const {
  return stretch.module == 0 || config_->calls_unused_units || std::any_of(stretch.parameters.begin(), stretch.parameters.end(), [&](std::uint32_t p) { return uses(ordinal, p); });
}

FullyShardedDataParallel::Graph FullyShardedDataParallel::forward(const Pass& pass, std::uint32_t ordinal) {
  Graph graph;
  bool requires_grad = false;
  ++shared_.forward;
  root_pre_forward(pass);
  pre_forward(0, ordinal, pass, graph);
  graph.push_back({Node::Kind::first_of_model});
  for (const Stretch& stretch : shared_.modules.order) {
    if (!calls(stretch, ordinal)) continue;
    if (stretch.module != 0) pre_forward(stretch.module, ordinal, pass, graph);
    for (const std::uint32_t p : stretch.parameters) {
      if (!uses(ordinal, p)) continue;
      check_weights(p, stretch.module);
      graph.push_back({Node::Kind::gradient, p});
      requires_grad = true;
    }
    if (stretch.module != 0) post_forward(stretch.module, requires_grad, pass, graph);
  }
  post_forward(0, requires_grad, pass, graph);
  // Autograd visits first what was made last: views of forwards before this one come behind all that is of this one.
  const auto is_old = [&](const Node& node) { return node.kind == Node::Kind::accumulate_grad && node.forward != shared_.forward; };
  const auto old_end = std::stable_partition(graph.begin(), graph.end(), is_old);
  std::stable_sort(graph.begin(), old_end, [](const Node& a, const Node& b) { return a.forward < b.forward; });
  return graph;
}

// A module whose hook left out its forward computes with what it has: views of weights of before, or weights that are cut.
void FullyShardedDataParallel::check_weights(std::uint32_t p, std::uint32_t module) {
  const FlatParamHandle& h = handle_of(module);
  if (h.views_changed_in_place && !h.exposes_params) throw changed_in_place();
  if (!h.uses_sharded_strategy()) return;
  if (h.exposes_params && h.use_orig_params())
    for (const Part& part : h.layout().parts)
      if (const auto piece = h.layout().piece(part, shared_.shard_index()); part.parameter == p && piece.numel != part.numel) throw cut_weight(piece.numel, part.numel);
  if (!h.full_param.defined()) throw given_up_weight();
}

void FullyShardedDataParallel::root_pre_forward(const Pass& pass) {
  lazy_init(pass);
  if (config_->forward_prefetch)
    for (FlatParamHandle& h : shared_.handles) {
      h.needs_pre_forward_unshard = true;
      h.prefetched = false;
    }
  wait_stream(pass.w, Stream::all_gather, Stream::compute);
  wait_stream(pass.w, Stream::copy, Stream::compute);
  for (FlatParamHandle& h : shared_.handles) h.reset_flat_param_grad_info_if_needed(pass);
}

// A module that an aborted backward left behind its pre-backward hook takes this forward for the recomputation of checkpointed activations.
void FullyShardedDataParallel::pre_forward(std::uint32_t module, std::uint32_t ordinal, const Pass& pass, Graph& graph) {
  FlatParamHandle& h = handle_of(module);
  if (h.empty()) {
    shared_.states[module] = TrainingState::forward_backward;
    return;
  }
  const bool recomputes = h.training_state == HandleTrainingState::backward_pre;
  // Where weights were gathered ahead their views were made with them, before the forward of the module that did so.
  const std::size_t made_at = config_->forward_prefetch && h.prefetched ? h.views_made_at : graph.size();
  if (!recomputes) {
    shared_.states[module] = TrainingState::forward_backward;
    if (shared_.iteration == 0 && !h.pre_forward_order_index) {
      h.pre_forward_order_index = static_cast<std::uint32_t>(shared_.pre_forward_order.size());
      shared_.pre_forward_order.push_back(module);
    }
    h.training_state = HandleTrainingState::forward;
    if (!h.prefetched) unshard(module, pass);
    h.needs_pre_forward_unshard = false;
    wait_stream(pass.w, Stream::compute, Stream::all_gather);
  }
  if (uses_module(ordinal, module))
    graph.insert(graph.begin() + static_cast<std::ptrdiff_t>(made_at), {Node::Kind::accumulate_grad, module, h.views_accumulator, h.views_forward, ordinal});
  if (recomputes) return;
  prefetch_forward(module, graph.size(), pass);
  // _register_post_backward_hook: once, in the first forward since the last backward that was over.
  if (!h.hooked_accumulator) h.hooked_accumulator = h.accumulator;
}

// _post_forward_reshard is in it: the root keeps its weights for the backward.
void FullyShardedDataParallel::post_forward(std::uint32_t module, bool output_requires_grad, const Pass& pass, Graph& graph) {
  FlatParamHandle& h = handle_of(module);
  if (!h.empty()) {
    if (h.training_state == HandleTrainingState::backward_pre) return;
    if (h.post_forward_index.value_or(0) == 0) h.post_forward_index = static_cast<std::uint32_t>(shared_.post_forward_order.size());
    shared_.post_forward_order.push_back(module);
    reshard(module, module != 0 && h.reshards_after_forward(), pass);
  }
  register_pre_backward_hooks(module, output_requires_grad, graph);
  shared_.states[module] = TrainingState::idle;
  h.training_state = HandleTrainingState::idle;
}

void FullyShardedDataParallel::register_pre_backward_hooks(std::uint32_t module, bool output_requires_grad, Graph& graph) {
  FlatParamHandle& h = handle_of(module);
  if (module == 0) post_backward_callback_queued_ = false;
  h.needs_pre_backward_unshard = h.ran_pre_backward_hook = false;
  if (!output_requires_grad) return;
  // Hooks of one tensor run in the order of their registration: what a module returns as another returned it to it is the same tensor.
  auto at = graph.end();
  while (at != graph.begin() && std::prev(at)->kind == Node::Kind::pre_backward) --at;
  graph.insert(at, {Node::Kind::pre_backward, module});
  h.needs_pre_backward_unshard = true;
}

void FullyShardedDataParallel::explicit_forward(const Event& event, const Pass& pass) {
  const auto number = static_cast<std::uint32_t>(&event - context_.timeline->events.data());
  const std::uint32_t mine = forwards_++;
  graphs_[mine] = forward(pass, backward_of_forward(number));
}

// Which parameters a forward uses is known from its backward.
std::uint32_t FullyShardedDataParallel::backward_of_forward(std::uint32_t forward) const {
  const std::vector<Event>& all = context_.timeline->events;
  for (std::size_t i = forward + 1; i < all.size() && all[i].documented == all[forward].documented; ++i)
    if (const auto* body = all[i].as<events::Backward>(); body && !body->own_forward && body->of + 1 == forwards_ && all[i].runs_on(context_.rank)) return body->ordinal;
  return no_index;
}

}  // namespace gradledger::torch::flat_sharded
