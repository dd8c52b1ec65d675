#include "sim/frameworks/megatron/finalize_model_grads.h"

#include <algorithm>
#include <vector>

#include "sim/frameworks/megatron/parallel_groups.h"

namespace gradledger::megatron {

void ModelGradients::initialise(ProgramWriter& w) {
  const BufferId b = w.declare("num_tokens", Dtype::int32, 1);
  w.allocate(b);
  num_tokens_ = w.whole(b);
}

void ModelGradients::finish(DistributedDataParallel& ddp, const std::optional<std::vector<std::uint64_t>>& tokens, ProgramWriter& w) {
  all_reduce_non_tensor_parallel(ddp, w);
  all_reduce_embedding(ddp, w);
  if (tokens) divide_by_tokens(ddp, *tokens, w);
}

// Sequence-parallel ranks each have a part of such a gradient; copies that saw all of it are averaged.
void ModelGradients::all_reduce_non_tensor_parallel(DistributedDataParallel& ddp, ProgramWriter& w) {
  if (setup_->groups.tensor.size() == 1) return;
  std::vector<Slice> summed, averaged;
  for (std::uint32_t p = 0; p < setup_->parameter_count(); ++p) {
    const Attributes attributes = setup_->attributes(p);
    if (ddp.main_grad(p).buffer == no_index) continue;
    if (attributes.average_gradients_across_tp_domain && setup_->behaviour.averages_over_tensor) averaged.push_back(ddp.main_grad(p));
    else if (attributes.sequence_parallel && setup_->config->model.sequence_parallel) summed.push_back(ddp.main_grad(p));
  }
  all_reduce_coalesced(summed, ReduceOp::sum, summed_, w);
  all_reduce_coalesced(averaged, ReduceOp::avg, averaged_, w);
}

void ModelGradients::all_reduce_coalesced(const std::vector<Slice>& grads, ReduceOp op, Slice& flat, ProgramWriter& w) {
  if (grads.empty()) return;
  std::uint64_t numel = 0;
  for (const Slice& grad : grads) numel += grad.numel;
  if (flat.buffer == no_index) flat = w.whole(w.declare(op == ReduceOp::avg ? "coalesced_avg" : "coalesced_sum", w.declaration(grads.front().buffer).dtype, numel));
  w.allocate(flat.buffer);
  std::uint64_t at = 0;
  for (const Slice& grad : grads) w.copy(flat.part(at, grad.numel), grad), at += grad.numel;
  meet_in(setup_->groups.tensor, {.kind = CollectiveKind::all_reduce, .op = op, .purpose = Purpose::gradient, .input = flat, .output = flat}, w);
  at = 0;
  for (const Slice& grad : grads) w.copy(grad, flat.part(at, grad.numel)), at += grad.numel;
  w.release(flat.buffer);
}

void ModelGradients::all_reduce_embedding(DistributedDataParallel& ddp, ProgramWriter& w) {
  const ParallelGroups& groups = setup_->groups;
  if (groups.embedding.size() == 1 || !(groups.first_stage() || groups.last_stage())) return;
  for (std::uint32_t p = 0; p < setup_->parameter_count(); ++p) {
    const Slice grad = ddp.main_grad(p);
    if (setup_->attributes(p).shared_embedding && grad.buffer != no_index)
      meet_in(groups.embedding, {.kind = CollectiveKind::all_reduce, .purpose = Purpose::gradient, .input = grad, .output = grad}, w);
  }
}

// Only the last stage knows its tokens. None at all: nothing is divided.
void ModelGradients::divide_by_tokens(DistributedDataParallel& ddp, const std::vector<std::uint64_t>& tokens, ProgramWriter& w) {
  const ParallelGroups& groups = setup_->groups;
  w.fill(num_tokens_, static_cast<double>(tokens[setup_->context.rank]));
  meet_in(groups.pipeline, {.kind = CollectiveKind::broadcast, .purpose = Purpose::control, .root = groups.pipeline.size() - 1, .input = num_tokens_, .output = num_tokens_}, w);
  const ProcessGroup& counted = setup_->behaviour.tokens_over_context ? groups.data_context : groups.data;
  meet_in(counted, {.kind = CollectiveKind::all_reduce, .purpose = Purpose::control, .input = num_tokens_, .output = num_tokens_}, w);
  // Each rank of the group has what the last stage of its own pipeline counted.
  std::uint64_t all = 0;
  for (const std::uint32_t last : last_stages(*setup_->context.scenario, counted.ranks)) all += tokens[last];
  if (all > 0) ddp.scale_gradients(1.0 / static_cast<double>(all), w);
}

}  // namespace gradledger::megatron
