// A backward visits the nodes of its forwards from the last. Gradients of a flat parameter are made at once, where its views were split off it.
#include <algorithm>
#include <utility>

#include "sim/frameworks/torch/fsdp1/errors.h"
#include "sim/frameworks/torch/fsdp1/fully_sharded.h"

namespace gradledger::torch::flat_sharded {

namespace {

[[noreturn]] void raise_in_backward() { throw FrameworkError{"RuntimeError", "raised by the script in a backward"}; }

}  // namespace

void FullyShardedDataParallel::backward(const events::Backward& event, const Pass& pass) {
  std::vector<Graph> graphs;
  if (event.own_forward)
    for (std::uint32_t i = 0; i < event.summed; ++i) graphs.push_back(forward(pass, event.ordinal + i));
  else graphs.push_back(graphs_[event.of]);
  final_callback_of_this_backward_ = false;
  backward_scale_ = gradient_scale_ = event.past_scaler ? 1.0 : scaler_.scale_loss();
  Walk walk{event, graphs};
  // The nodes of the last forward were made last, and come first.
  for (auto i = static_cast<std::uint32_t>(graphs.size()); i-- > 0;) autograd(i, walk, pass);
  if (final_callback_of_this_backward_) post_backward_final_callback(pass);
}

void FullyShardedDataParallel::autograd(std::uint32_t number, Walk& walk, const Pass& pass) {
  const Graph& graph = walk.graphs[number];
  for (auto node = graph.rbegin(); node != graph.rend(); ++node) {
    switch (node->kind) {
      case Node::Kind::pre_backward: pre_backward_hook(node->of, pass); break;
      case Node::Kind::accumulate_grad: accumulate_grad(*node, number, walk, pass); break;
      case Node::Kind::gradient:
        if (walk.event.raises_after && walk.gradients++ == *walk.event.raises_after) raise_in_backward();
        break;
      case Node::Kind::first_of_model:
        if (walk.event.raises_after && number == 0) raise_in_backward();
        break;
    }
  }
}

// Autograd adds up what reaches one AccumulateGrad, and runs it once, and the hook of it. In another dtype each forward has its own.
void FullyShardedDataParallel::accumulate_grad(const Node& node, std::uint32_t number, const Walk& walk, const Pass& pass) {
  const auto leads_here = [&](const Node& other) { return other.kind == node.kind && other.of == node.of && other.accumulator == node.accumulator; };
  const auto in_graph = [&](const Graph& graph) { return std::find_if(graph.begin(), graph.end(), leads_here); };
  for (std::uint32_t i = 0; i < number; ++i)
    if (in_graph(walk.graphs[i]) != walk.graphs[i].end()) return;
  Tensor sum;
  for (auto i = static_cast<std::uint32_t>(walk.graphs.size()); i-- > number;) {
    const auto found = in_graph(walk.graphs[i]);
    if (found == walk.graphs[i].end()) continue;
    const std::uint32_t ordinal = walk.event.ordinal + i;
    const Tensor one = gradient_of_forward(*found, ordinal, sum.defined() || handle_of(node.of).grad.defined() ? "flat_param.grad of a forward" : "flat_param.grad", pass);
    if (!sum.defined()) {
      sum = one;
      continue;
    }
    pass.w.accumulate(sum.slice, one.slice);
    shared_.tensors.drop(pass.w, one);
  }
  FlatParamHandle& h = handle_of(node.of);
  h.accumulate_grad(pass, sum);
  if (h.hooked_accumulator == node.accumulator) post_backward_hook(node.of, pass);
}

// Parameters that the forward did not use have zeros in it, whatever a later backward of it says, and so has padding.
Tensor FullyShardedDataParallel::gradient_of_forward(const Node& node, std::uint32_t ordinal, const char* name, const Pass& pass) {
  const FlatParamHandle& h = handle_of(node.of);
  const Tensor out = shared_.tensors.allocate(pass.w, h.label(shared_, name), h.param_dtype(), h.layout().unpadded_numel);
  const std::vector<double>& of_loop = context_.timeline->backwards[ordinal].loss_factor;
  const double factor = backward_scale_ * (of_loop.empty() ? 1.0 : of_loop[context_.rank]);
  std::uint64_t at = 0;
  const auto zeros_until = [&](std::uint64_t end) {
    if (end > at) pass.w.fill(out.slice.part(at, end - at), 0.0);
    at = end;
  };
  for (const Part& part : h.layout().parts) {
    if (!uses(ordinal, part.parameter) || !uses(node.ordinal, part.parameter)) continue;
    zeros_until(part.offset);
    if (part.numel > 0) pass.w.deposit(out.slice.part(part.offset, part.numel), ordinal, part.parameter, 0, factor, false);
    at = part.offset + part.numel;
  }
  zeros_until(h.layout().unpadded_numel);
  return out;
}

// ---- hooks ------------------------------------------------------------------------------------------------------------------------

void FullyShardedDataParallel::pre_backward_hook(std::uint32_t module, const Pass& pass) {
  FlatParamHandle& h = handle_of(module);
  if (!h.empty() && h.ran_pre_backward_hook) return;
  TrainingState& state = shared_.states[module];
  if (module == 0 && !post_backward_callback_queued_) {
    if (state != TrainingState::idle) throw not_idle();
    post_backward_callback_queued_ = final_callback_of_this_backward_ = true;
    for (FlatParamHandle& each : shared_.handles) each.reset_flat_param_grad_info_if_needed(pass);
  } else if (!h.empty() && state != TrainingState::idle) {
    throw not_idle();
  }
  state = TrainingState::forward_backward;
  if (h.empty()) return;
  h.training_state = HandleTrainingState::backward_pre;
  if (h.needs_pre_backward_unshard) {
    if (!h.prefetched) unshard(module, pass);
    wait_stream(pass.w, Stream::compute, Stream::all_gather);
  }
  h.needs_pre_backward_unshard = false;
  prefetch_backward(module, pass);
  h.prepare_gradient_for_backward(pass);
  h.ran_pre_backward_hook = true;
}

void FullyShardedDataParallel::post_backward_hook(std::uint32_t module, const Pass& pass) {
  FlatParamHandle& h = handle_of(module);
  h.post_backward_called = true;
  if (shared_.states[module] != TrainingState::forward_backward) throw not_in_a_pass();
  if (h.training_state != HandleTrainingState::backward_pre && h.training_state != HandleTrainingState::backward_post)
    throw FrameworkError{"AssertionError", "Expects `BACKWARD_PRE` or `BACKWARD_POST` state but got HandleTrainingState.IDLE"};
  h.training_state = HandleTrainingState::backward_post;
  post_backward_reshard(module, pass);
  if (!shared_.sync_gradients) {
    if (h.use_orig_params()) h.use_unsharded_grad_views(pass);
    return;
  }
  wait_stream(pass.w, Stream::communication, Stream::compute);
  OnStream on(pass.w, Stream::communication);
  if (pass.w.declaration(h.grad.slice.buffer).dtype != h.reduce_dtype()) {
    const Tensor cast = shared_.tensors.allocate(pass.w, h.label(shared_, "flat_param.grad in reduce_dtype"), h.reduce_dtype(), h.grad.numel());
    pass.w.copy(cast.slice, h.grad.slice);
    h.replace_grad(pass, cast);
  }
  if (h.uses_sharded_strategy()) reduce_grad(module, pass);
  else reduce_grad_no_shard(module, pass);
}

void FullyShardedDataParallel::post_backward_reshard(std::uint32_t module, const Pass& pass) {
  reshard(module, should_free_in_backward(module, shared_), pass);
  prefetch_backward(module, pass);
}

// Without a reduction, strategies that keep weights behind a forward keep them behind a backward too.
bool should_free_in_backward(std::uint32_t module, const Shared& s) {
  const FlatParamHandle& h = s.handles[module];
  return h.uses_sharded_strategy() && (s.sync_gradients || h.reshards_after_forward());
}

// ---- the end of a backward --------------------------------------------------------------------------------------------------------

void FullyShardedDataParallel::post_backward_final_callback(const Pass& pass) {
  if (shared_.sync_gradients) {
    wait_stream(pass.w, Stream::compute, Stream::communication);
    if (config_->mesh) wait_stream(pass.w, Stream::compute, Stream::all_reduce);
    if (config_->over_the_bus()) {
      pass.w.host_waits();
      wait_stream(pass.w, Stream::host, Stream::compute);
    }
  }
  ++shared_.iteration;
  shared_.post_forward_order.clear();
  for (std::uint32_t m = 0; m < module_count(); ++m) {
    FlatParamHandle& h = handle_of(m);
    if (!h.empty()) {
      catch_all_reshard(m, pass);
      finalize_params(m, pass);
    }
    shared_.states[m] = TrainingState::idle;
    h.ran_pre_backward_hook = h.needs_pre_backward_unshard = h.prefetched = false;
    h.post_forward_index.reset();
    h.training_state = HandleTrainingState::idle;
  }
  post_backward_callback_queued_ = false;
}

void FullyShardedDataParallel::catch_all_reshard(std::uint32_t module, const Pass& pass) {
  const FlatParamHandle& h = handle_of(module);
  const bool resharded = (h.data == Data::local_shard || h.data_tensor().slice == h.local_shard.slice) && !h.skipped_sharded_views;
  if (!resharded) reshard(module, should_free_in_backward(module, shared_), pass);
}

void FullyShardedDataParallel::finalize_params(std::uint32_t module, const Pass& pass) {
  FlatParamHandle& h = handle_of(module);
  h.hooked_accumulator.reset();
  if (!shared_.sync_gradients) return;
  h.prepare_gradient_for_optim(pass);
  h.post_backward_called = false;
}

}  // namespace gradledger::torch::flat_sharded
