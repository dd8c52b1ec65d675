#include "sim/frameworks/megatron_fsdp/weight_gathers.h"

#include <algorithm>
#include <utility>

namespace gradledger::megatron_fsdp {
namespace {

// Half of what suggested_communication_unit_size is at least: megatron_fsdp.py: _init_fsdp_param_and_grad_buffer, at 0.6.1
constexpr std::uint64_t ahead_max = 500'000'000;

}  // namespace

WeightGathers::WeightGathers(std::shared_ptr<const Setup> setup) : setup_(std::move(setup)), buckets_(this->setup().layout.groups.size()) {
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    expects(b == 0 || group(b - 1).unit <= group(b).unit, "parameter groups lie unit by unit");
    first_of_unit_.resize(std::max<std::size_t>(first_of_unit_.size(), group(b).unit + 1), b);
  }
  unit_recomputes_.assign(first_of_unit_.size(), false);
  first_of_unit_.push_back(buckets_.size());
  layer_recomputes_.assign(this->setup().parameter_count(), false);
}

// ---- forward ------------------------------------------------------------------------------------------------------------------------

// Parameters of no unit are the model's own where units are named, and each a layer's otherwise.
void WeightGathers::forward(const std::vector<ModuleCall>& calls, TensorTable& tensors, ProgramWriter& w) {
  if (setup().strategy() == Strategy::no_shard) return;
  const bool own = setup().config->units.has_value();
  if (own) unshard(buckets_of(0), !unit_recomputes_[0], Order::forward, tensors, w);
  for (const ModuleCall& call : calls) {
    if (call.module == 0) {
      for (const std::uint32_t p : call.parameters)
        if (const std::size_t b = setup().layout.group_of[p]; !own) unshard({b, b + 1}, !layer_recomputes_[p], Order::forward, tensors, w);
      continue;
    }
    const Stretch buckets = buckets_of(call.module);
    unshard(buckets, !unit_recomputes_[call.module], Order::forward, tensors, w);
    for (std::size_t b = buckets.begin; b < buckets.end; ++b) {
      if (!unit_recomputes_[call.module]) release(b, tensors, w);
      else if (setup().behaviour.releases_recomputed && buckets_[b].status != Status::empty) mark(b, true);
    }
  }
}

// ---- backward -----------------------------------------------------------------------------------------------------------------------

void WeightGathers::begin_backward() {
  if (!shards_weights()) return;
  unit_recomputes_.assign(unit_recomputes_.size(), true);
  if (setup().behaviour.marks_all_modules) layer_recomputes_.assign(layer_recomputes_.size(), true);
  else unit_recomputes_[0] = false;
  for (std::size_t b = first_of_unit_[1]; b < buckets_.size(); ++b) mark(b, true);
}

void WeightGathers::pre_backward(const ModuleCall& call, TensorTable& tensors, ProgramWriter& w) {
  if (setup().strategy() == Strategy::no_shard || call.module == 0) return;
  unit_recomputes_[call.module] = true;
  unshard(buckets_of(call.module), true, Order::backward, tensors, w);
}

void WeightGathers::post_backward(const ModuleCall& call, TensorTable& tensors, ProgramWriter& w) {
  if (!shards_weights() || call.module == 0) return;
  const Stretch buckets = buckets_of(call.module);
  for (std::size_t b = buckets.begin; b < buckets.end; ++b) release(b, tensors, w);
  unit_recomputes_[call.module] = false;
}

void WeightGathers::reset(TensorTable& tensors, ProgramWriter& w) {
  micro_batches_ = 0;
  for (std::size_t b = 0; b < buckets_.size(); ++b) wait(b, w);
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    // What is of no unit keeps its memory, and is gathered again all the same.
    if (group(b).unit != 0) mark(b, true);
    else buckets_[b].status = Status::empty;
  }
  recycle(tensors, w);
}

// ---- gathers ------------------------------------------------------------------------------------------------------------------------

void WeightGathers::mark(std::size_t bucket, bool releasable) {
  releasable_ += releasable;
  releasable_ -= std::exchange(buckets_[bucket].releasable, releasable);
}

// One after the other as the model lists them, each with all of its unit.
WeightGathers::Stretch WeightGathers::with_those_ahead(Stretch wanted, Order order) const {
  Stretch out = wanted;
  for (std::uint64_t added = 0; added < ahead_max && (order == Order::forward ? out.end < buckets_.size() : out.begin > 0);) {
    const std::size_t next = order == Order::forward ? out.end : out.begin - 1;
    const Stretch together = group(next).unit == 0 ? Stretch{next, next + 1} : buckets_of(group(next).unit);
    for (std::size_t b = together.begin; b < together.end; ++b) added += group(b).numel;
    if (order == Order::forward) out.end = together.end;
    else out.begin = together.begin;
  }
  return out;
}

void WeightGathers::unshard(Stretch wanted, bool ahead, Order order, TensorTable& tensors, ProgramWriter& w) {
  if (wanted.begin == wanted.end) return;
  for (std::size_t b = wanted.begin; b < wanted.end; ++b) mark(b, false);
  const Stretch all = ahead ? with_those_ahead(wanted, order) : wanted;
  std::vector<std::size_t> empty, together;
  for (std::size_t b = all.begin; b < all.end; ++b)
    if (buckets_[b].status == Status::empty) empty.push_back(b);
  for (std::size_t i = 0; i < empty.size(); ++i) {
    together.push_back(empty[i]);
    if (i + 1 < empty.size() && group(empty[i]).unit != 0 && group(empty[i + 1]).unit == group(empty[i]).unit) continue;
    gather_together(together, tensors, w);
    together.clear();
  }
  for (std::size_t b = wanted.begin; b < wanted.end; ++b) wait(b, w);
}

// The stream between shards is not told apart from that within one, which waits for it.
void WeightGathers::gather_together(const std::vector<std::size_t>& buckets, TensorTable& tensors, ProgramWriter& w) {
  const std::uint32_t ready = w.record();
  const OnStream on(w, Stream::all_gather);
  w.wait(ready);
  const bool outside = setup().config->outer_sharding && outer_too_;
  for (const std::size_t b : buckets) {
    if (!buckets_[b].shard.defined()) {
      buckets_[b].shard = tensors.allocate(w, label("model_weight_buffer", b), group(b).dtype, Layout::share(group(b), setup().layout.shard.size()));
      w.fill(buckets_[b].shard.slice, 0.0);
    }
    if (outside) gather_outside(b, w);
  }
  for (const std::size_t b : buckets) {
    Bucket& bucket = buckets_[b];
    mark(b, false);
    bucket.status = Status::communicating;
    recycle(tensors, w);
    if (!bucket.whole.defined()) bucket.whole = tensors.allocate_again(w, bucket.before, group(b).dtype, group(b).numel, [&] { return label("weights bucket", b); });
    w.collective({.kind = CollectiveKind::all_gather, .purpose = Purpose::parameter, .group = setup().layout.shard.id, .input = bucket.shard.slice, .output = bucket.whole.slice});
    bucket.gathered = w.record();
  }
}

// Of what the ranks outside of a shard step, the shard that they have together.
void WeightGathers::gather_outside(std::size_t bucket, ProgramWriter& w) const {
  const ProcessGroup& outer = setup().layout.outer;
  const Slice shard = buckets_[bucket].shard.slice;
  const std::uint64_t part = shard.numel / outer.size();
  w.collective({.kind = CollectiveKind::all_gather,
                .purpose = Purpose::parameter,
                .group = outer.id,
                .input = shard.part(part * outer.index_of(setup().context.rank), part),
                .output = shard});
}

void WeightGathers::wait(std::size_t bucket, ProgramWriter& w) {
  if (buckets_[bucket].status != Status::communicating) return;
  w.wait(buckets_[bucket].gathered);
  buckets_[bucket].status = Status::ready;
}

// Weights that every rank has whole keep their memory.
void WeightGathers::release(std::size_t bucket, TensorTable& tensors, ProgramWriter& w) {
  if (buckets_[bucket].status == Status::empty) return;
  wait(bucket, w);
  buckets_[bucket].status = Status::empty;
  if (shards_weights()) tensors.clear(w, buckets_[bucket].whole);
}

void WeightGathers::recycle(TensorTable& tensors, ProgramWriter& w) {
  for (std::size_t b = 0; releasable_ > 0 && b < buckets_.size(); ++b) {
    if (!buckets_[b].releasable) continue;
    mark(b, false);
    release(b, tensors, w);
  }
}

}  // namespace gradledger::megatron_fsdp
