// What happens to the gradients of a group once they are reduced: _fsdp_collectives.py, foreach_reduce and what it calls.
#include <algorithm>
#include <cmath>
#include <utility>

#include "sim/frameworks/torch/fsdp2/errors.h"
#include "sim/frameworks/torch/fsdp2/param_group.h"

namespace gradledger::torch::fully_shard {
namespace {

// target += source as PyTorch broadcasts: one element is added to all.
void add(ProgramWriter& w, Slice target, Slice source) {
  if (target.numel == source.numel) return w.accumulate(target, source);
  for (std::uint32_t i = 0; i < target.numel; ++i) w.accumulate(target.part(i, 1), source);
}

bool can_be_added(Slice target, Slice source) { return target.numel == source.numel || source.numel == 1; }

// About the root of a factor, as a power of two.
double half_of(double factor) {
  double out = 1;
  while (std::fmod(factor, out) == 0 && factor / out > out) out *= 2;
  return out;
}

void divide_if_needed(ProgramWriter& w, Slice slice, std::optional<double> divisor) {
  if (divisor && *divisor != 1) w.divide(slice, *divisor);
}

}  // namespace

// fp32 and bf16 leave division to the collective. Others may overflow: about the root of the factor is divided by before, the rest after.
ParamGroup::Factors ParamGroup::gradient_divide_factors(const Shared& s, Dtype wire) const {
  const bool overflow_risk = wire != Dtype::float32 && wire != Dtype::bfloat16;
  const std::uint32_t shards = s.modules.shard.size(), ranks = shards * s.modules.replicate.size();
  if (s.behaviour.divide_factor == DivideFactor::of_reduce_scatter) return factors_of_the_reduce_scatter(ranks, overflow_risk);
  const bool by_shards = s.behaviour.divide_factor == DivideFactor::of_average_by_shards;
  Factors out;
  if (!overflow_risk && !force_sum_reduction_for_comms) {
    if (!gradient_divide_factor || (!by_shards && *gradient_divide_factor == ranks)) {
      if (ranks > 1) out.reduce_scatter = out.all_reduce = ReduceOp::avg;
    } else if (by_shards && *gradient_divide_factor == shards) {
      out.reduce_scatter = ReduceOp::avg;
    } else {
      out.reduce_scatter = ReduceOp::premultiplied_sum;
      out.premultiplied = 1 / *gradient_divide_factor;
    }
    return out;
  }
  const double factor = gradient_divide_factor.value_or(ranks);
  out.after = factor;
  if (overflow_risk) out.after = factor / *(out.before = half_of(factor));
  return out;
}

// The factor of a loop took the place of the reduce-scatter's operation, and of nothing else: what divides by the number of ranks does so besides.
ParamGroup::Factors ParamGroup::factors_of_the_reduce_scatter(std::uint32_t ranks, bool overflow_risk) const {
  Factors out;
  if (overflow_risk) out.after = ranks / *(out.before = half_of(ranks));
  else out.reduce_scatter = out.all_reduce = ReduceOp::avg;
  if (!gradient_divide_factor) return out;
  out.reduce_scatter = ReduceOp::premultiplied_sum;
  out.premultiplied = 1 / *gradient_divide_factor;
  return out;
}

void ParamGroup::foreach_reduce(const Pass& pass, std::vector<Collected> grads) {
  ProgramWriter& w = pass.w;
  const auto dtype_of = [&](const Collected& c) { return w.declaration(c.grad.slice.buffer).dtype; };
  std::vector<Dtype> dtypes;
  std::vector<std::uint32_t> parameters;
  for (const Collected& c : grads) {
    if (std::find(dtypes.begin(), dtypes.end(), dtype_of(c)) == dtypes.end()) dtypes.push_back(dtype_of(c));
    parameters.push_back(c.parameter);
  }
  const std::optional<Dtype> of_leaf = pass.s.params[parameters.front()].leaf_grad_dtype;
  if (dtypes.size() > 1 && !of_leaf) {
    for (const Collected& c : grads) pass.s.tensors.drop(w, c.grad);
    throw gradients_of_several_dtypes(dtypes);
  }
  const Dtype wire = of_leaf ? *of_leaf : pass.s.params[parameters.front()].reduce_dtype.value_or(dtypes.front());
  const Factors factors = gradient_divide_factors(pass.s, wire);
  if (std::any_of(grads.begin(), grads.end(), [](const Collected& c) { return c.grad.slice.numel == 0; })) {
    for (const Collected& c : grads) pass.s.tensors.drop(w, c.grad);
    throw empty_gradient();
  }
  if (pass.s.modules.hybrid) prepare_partial(pass, grads, wire);
  const Tensor input = reduce_scatter_input(pass, grads, wire);
  wait_stream(w, Stream::communication, Stream::compute);

  OnStream on_reduce_scatter(w, Stream::communication);
  const std::uint32_t world = pass.s.modules.shard.size();
  const Tensor output = pass.s.tensors.allocate_again(w, scattered_before_, wire, input.numel() / world, [&] { return label(pass.s, "reduce_scatter_output"); });
  divide_if_needed(w, input.slice, factors.before);
  if (world > 1 || pass.s.behaviour.one_rank_shard == OneRankShard::reduced) {
    w.collective({.kind = CollectiveKind::reduce_scatter,
                  .op = factors.reduce_scatter,
                  .group = pass.s.modules.shard.id,
                  .factor = factors.premultiplied,
                  .input = input.slice,
                  .output = output.slice});
  } else {
    w.copy(output.slice, input.slice);
    divide_if_needed(w, output.slice, gradient_divide_factor);
  }
  pass.s.comm.reduce_scatter_states.push_back({input, w.record()});

  Stream last = Stream::communication;
  if (pass.s.modules.hybrid && !all_reduce_grads) {
    accumulate_partial(pass, output);
  } else {
    if (pass.s.modules.hybrid) last = all_reduce(pass, output, factors);
    OnStream on_last(w, last);
    divide_if_needed(w, output.slice, factors.after);
    view_out(pass, parameters, output);
  }
  OnStream on_last(w, last);
  post_reduce_event_ = w.record();
  pass.s.comm.last_post_reduce_events[last] = *post_reduce_event_;
}

// Rank by rank, the chunk of each parameter behind that of the one before; the gradients are let go of.
Tensor ParamGroup::reduce_scatter_input(const Pass& pass, const std::vector<Collected>& grads, Dtype wire) {
  ProgramWriter& w = pass.w;
  const std::uint32_t world = pass.s.modules.shard.size();
  std::uint64_t numel = 0;
  for (const Collected& c : grads) numel += pass.s.modules.cuts[c.parameter].padded_numel();
  const Tensor input = pass.s.tensors.allocate_again(w, scatters_before_, wire, numel * world, [&] { return label(pass.s, "reduce_scatter_input"); });
  Interleaving by_rank{{}, world};
  bool padded = false;
  for (const Collected& c : grads) {
    const std::uint64_t chunk = pass.s.modules.cuts[c.parameter].padded_numel();
    by_rank.parts.push_back({c.grad.slice, chunk});
    padded |= c.grad.slice.numel < world * chunk;
  }
  if (padded) w.fill(input.slice, 0.0);
  w.interleave(input.slice, std::move(by_rank));
  for (const Collected& c : grads) pass.s.tensors.drop(w, c.grad);
  return input;
}

bool ParamGroup::has_partial(std::uint32_t parameter) const {
  return partial_reduce_output_.defined() && std::any_of(partial_layout_.begin(), partial_layout_.end(), [&](const Slot& slot) { return slot.parameter == parameter; });
}

// What waits for the other replicas is laid out as the parameters that are reduced now, which are all of those that it has and maybe more.
void ParamGroup::prepare_partial(const Pass& pass, const std::vector<Collected>& grads, Dtype wire) {
  if (!partial_reduce_output_.defined() && all_reduce_grads) return;
  if (pass.s.behaviour.partial_sums == PartialSums::by_place) return;
  std::vector<Slot> layout;
  std::uint64_t numel = 0;
  for (const Collected& c : grads) {
    layout.push_back({c.parameter, numel, pass.s.modules.cuts[c.parameter].padded_numel()});
    numel += layout.back().padded_numel;
  }
  const std::vector<Slot> before = std::exchange(partial_layout_, std::move(layout));
  if (!partial_reduce_output_.defined() || before == partial_layout_) return;
  OnStream on(pass.w, Stream::communication);
  const Tensor repacked = pass.s.tensors.allocate(pass.w, label(pass.s, "_partial_reduce_output"), wire, numel);
  pass.w.fill(repacked.slice, 0.0);
  for (const Slot& from : before)
    for (const Slot& to : partial_layout_)
      if (to.parameter == from.parameter) pass.w.copy(repacked.slice.part(to.offset, to.padded_numel), partial_reduce_output_.slice.part(from.offset, from.padded_numel));
  pass.s.tensors.give(pass.w, partial_reduce_output_, repacked);
}

// Between replicas nothing is reduced yet. Up to 2.14 PyTorch adds by place, whichever parameters took part before.
void ParamGroup::accumulate_partial(const Pass& pass, Tensor output) {
  if (!partial_reduce_output_.defined()) {
    partial_reduce_output_ = output;
    return;
  }
  const bool fits = can_be_added(partial_reduce_output_.slice, output.slice);
  if (fits) add(pass.w, partial_reduce_output_.slice, output.slice);
  pass.s.tensors.drop(pass.w, output);
  if (!fits) throw cannot_be_added(partial_reduce_output_.numel(), output.numel());
}

Stream ParamGroup::all_reduce(const Pass& pass, Tensor output, const Factors& factors) {
  ProgramWriter& w = pass.w;
  if (partial_reduce_output_.defined()) {
    if (!can_be_added(output.slice, partial_reduce_output_.slice)) {
      pass.s.tensors.drop(w, output);
      throw cannot_be_added(output.numel(), partial_reduce_output_.numel());
    }
    add(w, output.slice, partial_reduce_output_.slice);
    pass.s.tensors.clear(w, partial_reduce_output_);
  }
  wait_stream(w, Stream::all_reduce, Stream::communication);
  OnStream on(w, Stream::all_reduce);
  w.collective({.op = factors.all_reduce, .group = pass.s.modules.replicate.id, .input = output.slice, .output = output.slice});
  if (pass.s.behaviour.all_reduced_memory == AllReducedMemory::released) return Stream::all_reduce;
  // Held over the next module's reduction, so that its memory is not used again meanwhile.
  Tensor held;
  pass.s.tensors.share(w, held, output);
  all_reduce_state_ = Kept{held, w.record()};
  return Stream::all_reduce;
}

// Its memory is the reduce-scatter stream's, which does not wait for what another stream reads of it.
void ParamGroup::let_go_of_output(const Pass& pass, Tensor output) {
  OnStream home(pass.w, pass.s.behaviour.all_reduced_memory == AllReducedMemory::released ? Stream::communication : pass.w.stream());
  pass.s.tensors.drop(pass.w, output);
}

// Gradients are views of the output where nothing has to be cast, and added up in the parameter's dtype where there is one already.
void ParamGroup::view_out(const Pass& pass, const std::vector<std::uint32_t>& parameters, Tensor output) {
  ProgramWriter& w = pass.w;
  const Dtype orig = pass.s.params[parameters.front()].sharded_grad_dtype;
  Tensor flat = output;
  const bool cast = w.declaration(output.slice.buffer).dtype != orig;
  if (cast) {
    flat = pass.s.tensors.allocate(w, label(pass.s, "reduce_output_cast"), orig, output.numel());
    w.copy(flat.slice, output.slice);
    let_go_of_output(pass, output);
  }
  std::uint64_t at = 0;
  for (const std::uint32_t p : parameters) {
    FsdpParam& param = pass.s.params[p];
    const Tensor grad = flat.part(at, pass.s.modules.cuts[p].numel(pass.s.chunk()));
    at += pass.s.modules.cuts[p].padded_numel();
    if (pass.s.config->offload) offload(pass, p, grad.slice);
    else if (!param.sharded_grad.defined()) pass.s.tensors.share(w, param.sharded_grad, grad);
    else if (grad.numel() > 0) w.accumulate(param.sharded_grad.slice, grad.slice);
    if (!pass.s.config->optimizer_in_backward) continue;
    pass.step(p);
    pass.s.tensors.clear(w, param.sharded_grad);
  }
  if (cast) pass.s.tensors.drop(w, flat);
  else let_go_of_output(pass, flat);
}

// To memory of the host. The host goes on only where nobody there needs the gradient before the backward is over.
void ParamGroup::offload(const Pass& pass, std::uint32_t parameter, Slice grad) {
  ProgramWriter& w = pass.w;
  FsdpParam& param = pass.s.params[parameter];
  const bool adds = param.sharded_grad.defined(), blocks = adds || pass.s.config->optimizer_in_backward;
  Tensor copied = pass.s.tensors.allocate(w, pass.s.context.scenario->parameters[parameter].name + ".grad", param.sharded_grad_dtype, grad.numel, MemorySpace::host);
  if (grad.numel > 0) w.copy_over_the_bus(copied.slice, grad, !blocks);
  if (!blocks) {
    OnStream recorded(w, pass.s.behaviour.offload_event == OffloadEvent::reduce_scatter_stream ? Stream::communication : w.stream());
    grad_offload_events_.push_back(w.record());
  }
  if (!adds) return pass.s.tensors.give(w, param.sharded_grad, copied);
  OnStream host(w, Stream::host);
  if (grad.numel > 0) w.accumulate(param.sharded_grad.slice, copied.slice);
  pass.s.tensors.drop(w, copied);
}

}  // namespace gradledger::torch::fully_shard
