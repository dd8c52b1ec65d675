#include "sim/frameworks/megatron_fsdp/grad_buffer.h"

#include <algorithm>

namespace gradledger::megatron_fsdp {

void GradBuffer::initialise(ProgramWriter& w) {
  const Layout& layout = setup().layout;
  const Dtype dtype = setup().grads_dtype(group());
  const auto made = [&](const char* name, std::uint64_t numel) {
    const BufferId b = w.declare(label(name), dtype, numel);
    w.allocate(b);
    w.fill(w.whole(b), 0.0);
    return w.whole(b);
  };
  const std::uint64_t summed = distributed() ? Layout::share(group(), layout.shard.size()) : group().numel;
  ready_.assign(group().parameters.size(), false);
  if (!setup().config->outer_sharding) {
    main_ = summed_ = made("main_grad_buffer", summed);
    return;
  }
  summed_ = made("hfsdp_helper_gbuf", summed);
  const std::uint64_t part = Layout::share(group(), layout.owners);
  main_ = summed_.part(part * layout.outer.index_of(setup().context.rank), part);
}

Slice GradBuffer::part_of_rank(Slice whole) const {
  const std::uint64_t part = whole.numel / setup().layout.shard.size();
  return whole.part(part * setup().layout.shard.index_of(setup().context.rank), part);
}

Slice GradBuffer::owned(std::size_t at) const {
  const Part own = setup().layout.owned(group(), at);
  if (own.numel() == 0) return {main_.buffer, main_.offset, 0};
  // A buffer that is kept whole has the place of the group; a shard begins where the rank's part does.
  const bool whole = main_.numel == group().numel;
  const std::uint64_t begin = group().begins[at] + own.begin - (whole ? 0 : Layout::share(group(), setup().layout.owners) * setup().layout.owner);
  return main_.part(begin, own.numel());
}

// ---- backward -----------------------------------------------------------------------------------------------------------------------

std::optional<Dtype> GradBuffer::custom_wire(Dtype of_bucket) const {
  const auto wire = setup().config->mixed_precision.grad_comm_dtype;
  return wire && *wire != of_bucket ? wire : std::nullopt;
}

// A shard has no room for a whole gradient: a bucket that lasts until it is reduced.
Slice GradBuffer::bucket(TensorTable& tensors, ProgramWriter& w) {
  if (!distributed()) return summed_;
  if (bucket_.defined()) return bucket_.slice;
  bucket_ = tensors.allocate(w, label("bucket"), setup().config->mixed_precision.grad_comm_dtype.value_or(setup().grads_dtype(group())), group().numel);
  if (group().used < group().numel) w.fill(bucket_.slice.part(group().used, group().numel - group().used), 0.0);
  return bucket_.slice;
}

void GradBuffer::add(std::size_t at, Slice grad, TensorTable& tensors, ProgramWriter& w) {
  const Slice target = bucket(tensors, w).part(group().begins[at], grad.numel);
  // A fused kernel is told to write over main_grad, which a bucket that is new wants.
  if (distributed() || setup().behaviour.overwrites_main_grad) w.copy(target, grad);
  else w.accumulate(target, grad);
}

void GradBuffer::add_nothing(std::size_t at, TensorTable& tensors, ProgramWriter& w) {
  if (distributed()) w.fill(bucket(tensors, w).part(group().begins[at], setup().parameter(group().parameters[at]).numel), 0.0);
}

// ---- reduction ----------------------------------------------------------------------------------------------------------------------

bool GradBuffer::mark_ready(std::size_t at) {
  if (!ready_[at]) ++ready_count_;
  ready_[at] = true;
  return all_ready();
}

// Where the factor is not NCCL's to apply, it is applied to what is reduced; up to 0.2 to the buffer, which holds the backwards before.
GradBuffer::Operator GradBuffer::preprocess(Slice unreduced, ProgramWriter& w) const {
  if (setup().config->calculate_per_token_loss || (setup().config->outer_sharding && !setup().behaviour.divides_outer_shards)) return {};
  if (setup().config->average_in_collective) return {ReduceOp::avg, 1.0};
  const Slice scaled = setup().behaviour.scales_the_bucket ? unreduced : summed_;
  const double factor = 1.0 / setup().scenario().world_size;
  if (w.declaration(scaled.buffer).dtype != Dtype::bfloat16) return {ReduceOp::premultiplied_sum, factor};
  w.multiply(scaled, factor);
  return {};
}

void GradBuffer::collective(CollectiveKind kind, Operator op, const ProcessGroup& over, Slice input, Slice output, ProgramWriter& w) const {
  w.collective({.kind = kind, .op = op.op, .purpose = Purpose::gradient, .group = over.id, .factor = op.factor, .input = input, .output = output});
}

void GradBuffer::reduce(TensorTable& tensors, ProgramWriter& w) {
  const Slice filled = bucket(tensors, w);
  if (!setup().behaviour.scatters_in_place) {
    reduce_into_new_memory(filled, tensors, w);
  } else {
    const auto wire = distributed() ? std::nullopt : custom_wire(setup().grads_dtype(group()));
    if (wire) {
      staging_ = tensors.allocate(w, label("bucket"), *wire, group().numel);
      w.copy(staging_.slice, filled);
    }
    reduce_in_place(wire ? staging_.slice : filled, wire.has_value(), w);
  }
  partial_ = setup().layout.hybrid;
  reduced_ = !partial_;
}

void GradBuffer::reduce_in_place(Slice unreduced, bool custom, ProgramWriter& w) {
  const Operator op = preprocess(unreduced, w);
  if (setup().strategy() == Strategy::no_shard) {
    collective(CollectiveKind::all_reduce, op, setup().layout.shard, unreduced, unreduced, w);
    if (custom) w.copy(summed_, unreduced);
    return;
  }
  const Slice shard = part_of_rank(unreduced);
  collective(CollectiveKind::reduce_scatter, op, setup().layout.shard, unreduced, shard, w);
  if (!distributed() && !custom) return;
  const Slice target = distributed() ? summed_ : part_of_rank(summed_);
  if (setup().strategy() == Strategy::optim) w.copy(target, shard);
  else w.accumulate(target, shard);
}

// A gradient that is kept whole holds the rank's own sum already, to which the average is added.
void GradBuffer::reduce_into_new_memory(Slice from, TensorTable& tensors, ProgramWriter& w) {
  const Operator op = preprocess(from, w);
  const bool scatters = distributed() || (setup().behaviour.optim_scatters && setup().strategy() != Strategy::no_shard);
  if (!scatters) return collective(CollectiveKind::all_reduce, op, setup().layout.shard, from, from, w);
  const Tensor shard = tensors.allocate(w, label("grad_shard"), w.declaration(from.buffer).dtype, Layout::share(group(), setup().layout.shard.size()));
  collective(CollectiveKind::reduce_scatter, op, setup().layout.shard, from, shard.slice, w);
  w.accumulate(distributed() ? summed_ : part_of_rank(summed_), shard.slice);
  tensors.drop(w, shard);
}

void GradBuffer::reduce_outside(TensorTable& tensors, ProgramWriter& w) {
  partial_ = false;
  reduced_ = true;
  const Operator op{setup().config->average_in_collective ? ReduceOp::avg : ReduceOp::sum, 1.0};
  const auto wire = custom_wire(setup().grads_dtype(group()));
  Slice unreduced = summed_;
  Tensor staging;
  if (wire) {
    staging = tensors.allocate(w, label("outer bucket"), *wire, summed_.numel);
    w.copy(staging.slice, summed_);
    unreduced = staging.slice;
  }
  if (setup().config->outer_sharding) {
    Slice output = main_;
    Tensor fresh;
    if (wire) output = unreduced.part(main_.numel * setup().layout.outer.index_of(setup().context.rank), main_.numel);
    if (!wire && !setup().behaviour.scatters_in_place) {
      fresh = tensors.allocate(w, label("grad_shard"), setup().grads_dtype(group()), main_.numel);
      output = fresh.slice;
    }
    collective(CollectiveKind::reduce_scatter, op, setup().layout.outer, unreduced, output, w);
    if (wire || fresh.defined()) w.copy(main_, output);
    tensors.drop(w, fresh);
  } else {
    collective(CollectiveKind::all_reduce, op, setup().layout.outer, unreduced, unreduced, w);
    if (wire) w.copy(summed_, unreduced);
  }
  tensors.drop(w, staging);
}

void GradBuffer::free_up(TensorTable& tensors, ProgramWriter& w) {
  ready_.assign(ready_.size(), false);
  ready_count_ = 0;
  tensors.clear(w, bucket_);
  tensors.clear(w, staging_);
}

void GradBuffer::reduce_whole_buffer(ProgramWriter& w) {
  const Operator op = preprocess(main_, w);
  if (setup().strategy() == Strategy::no_shard) return collective(CollectiveKind::all_reduce, op, setup().layout.shard, main_, main_, w);
  collective(CollectiveKind::reduce_scatter, op, setup().layout.shard, main_, part_of_rank(main_), w);
}

void GradBuffer::zero(ProgramWriter& w) {
  reduced_ = partial_ = false;
  w.fill(main_, 0.0);
  if (setup().config->outer_sharding) w.fill(summed_, 0.0);
}

// ---- snapshots ----------------------------------------------------------------------------------------------------------------------

// What the rank steps of a buffer is the average once it was reduced; the rest of one that is kept whole is the rank's own still, scaled or not.
void GradBuffer::observe(double scale, bool judged, ProgramWriter& w) const {
  const Role role = !judged || partial_ ? Role::scratch : reduced_ || distributed() ? Role::reduced_accumulator : Role::local_accumulator;
  std::vector<ViewPiece> own, rest, helper;
  for (std::size_t at = 0; at < group().parameters.size(); ++at) {
    const auto p = static_cast<std::int32_t>(group().parameters[at]);
    const std::uint64_t begin = group().begins[at], numel = setup().parameter(group().parameters[at]).numel;
    const Part part = setup().layout.owned(group(), at);
    if (part.numel() > 0) own.push_back({owned(at), p, part.begin});
    if (main_.numel == group().numel && setup().layout.owners > 1) {
      if (part.begin > 0) rest.push_back({main_.part(begin, part.numel() > 0 ? part.begin : numel), p, 0});
      if (part.numel() > 0 && part.end < numel) rest.push_back({main_.part(begin + part.end, numel - part.end), p, part.end});
      if (part.numel() == 0 && part.begin == 0 && numel > 0) rest.push_back({main_.part(begin, numel), p, 0});
    }
    if (!setup().config->outer_sharding) continue;
    const std::uint64_t from = distributed() ? summed_.numel * setup().layout.shard.index_of(setup().context.rank) : 0;
    const std::uint64_t first = std::max(from, begin), last = std::min(from + summed_.numel, begin + numel);
    if (first < last) helper.push_back({summed_.part(first - from, last - first), p, first - begin});
  }
  if (!own.empty()) w.observe(w.view(label("main_grad_buffer"), std::move(own)), role, scale, true);
  if (!rest.empty()) w.observe(w.view(label("main_grad_buffer") + " of others", std::move(rest)), Role::scratch, scale, true);
  if (!helper.empty()) w.observe(w.view(label("hfsdp_helper_gbuf"), std::move(helper)), Role::scratch, scale, true);
}

}  // namespace gradledger::megatron_fsdp
