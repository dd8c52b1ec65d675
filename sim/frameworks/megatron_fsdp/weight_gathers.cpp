#include "sim/frameworks/megatron_fsdp/weight_gathers.h"

#include <algorithm>
#include <utility>

namespace gradledger::megatron_fsdp {
namespace {

// Half of what suggested_communication_unit_size is at least: megatron_fsdp.py: _init_fsdp_param_and_grad_buffer, at 0.6.1
constexpr std::uint64_t ahead_max = 500'000'000;

}  // namespace

WeightGathers::WeightGathers(std::shared_ptr<const Setup> setup) : setup_(std::move(setup)), buckets_(this->setup().layout.groups.size()) {
  std::uint32_t units = 0;
  for (const ParameterGroup& each : this->setup().layout.groups) units = std::max(units, each.unit);
  unit_recomputes_.assign(units + 1, false);
  layer_recomputes_.assign(this->setup().parameter_count(), false);
}

std::vector<std::size_t> WeightGathers::buckets_of(std::uint32_t unit) const {
  std::vector<std::size_t> out;
  for (std::size_t b = 0; b < buckets_.size(); ++b)
    if (group(b).unit == unit) out.push_back(b);
  return out;
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
        if (!own) unshard({setup().layout.group_of[p]}, !layer_recomputes_[p], Order::forward, tensors, w);
      continue;
    }
    const std::vector<std::size_t> buckets = buckets_of(call.module);
    unshard(buckets, !unit_recomputes_[call.module], Order::forward, tensors, w);
    for (const std::size_t b : buckets) {
      if (!unit_recomputes_[call.module]) release(b, tensors, w);
      else if (setup().behaviour.releases_recomputed && buckets_[b].status != Status::empty) buckets_[b].releasable = true;
    }
  }
}

// ---- backward -----------------------------------------------------------------------------------------------------------------------

void WeightGathers::begin_backward() {
  if (!shards_weights()) return;
  unit_recomputes_.assign(unit_recomputes_.size(), true);
  if (setup().behaviour.marks_all_modules) layer_recomputes_.assign(layer_recomputes_.size(), true);
  else unit_recomputes_[0] = false;
  for (std::size_t b = 0; b < buckets_.size(); ++b)
    if (group(b).unit != 0) buckets_[b].releasable = true;
}

void WeightGathers::pre_backward(const ModuleCall& call, TensorTable& tensors, ProgramWriter& w) {
  if (setup().strategy() == Strategy::no_shard || call.module == 0) return;
  unit_recomputes_[call.module] = true;
  unshard(buckets_of(call.module), true, Order::backward, tensors, w);
}

void WeightGathers::post_backward(const ModuleCall& call, TensorTable& tensors, ProgramWriter& w) {
  if (!shards_weights() || call.module == 0) return;
  for (const std::size_t b : buckets_of(call.module)) release(b, tensors, w);
  unit_recomputes_[call.module] = false;
}

void WeightGathers::reset(TensorTable& tensors, ProgramWriter& w) {
  micro_batches_ = 0;
  for (std::size_t b = 0; b < buckets_.size(); ++b) wait(b, w);
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    // What is of no unit keeps its memory, and is gathered again all the same.
    if (group(b).unit != 0) buckets_[b].releasable = true;
    else buckets_[b].status = Status::empty;
  }
  recycle(tensors, w);
}

// ---- gathers ------------------------------------------------------------------------------------------------------------------------

// One after the other as the model lists them, from the first of those wanted on or from the last of them back, each with all of its unit.
void WeightGathers::add_ahead(std::vector<std::size_t>& buckets, Order order) const {
  std::vector<bool> in(buckets_.size());
  for (const std::size_t b : buckets) in[b] = true;
  std::uint64_t added = 0;
  const std::size_t from = order == Order::forward ? buckets.front() : buckets.back();
  while (added < ahead_max) {
    std::size_t next = from;
    while (next < in.size() && in[next]) order == Order::forward ? ++next : --next;  // before the first there is none either
    if (next >= in.size()) break;
    for (std::size_t b = 0; b < in.size(); ++b) {
      if (in[b] || (b != next && (group(b).unit == 0 || group(b).unit != group(next).unit))) continue;
      in[b] = true;
      added += group(b).numel;
    }
  }
  buckets.clear();
  for (std::size_t b = 0; b < in.size(); ++b)
    if (in[b]) buckets.push_back(b);
}

void WeightGathers::unshard(const std::vector<std::size_t>& wanted, bool ahead, Order order, TensorTable& tensors, ProgramWriter& w) {
  if (wanted.empty()) return;
  for (const std::size_t b : wanted) buckets_[b].releasable = false;
  std::vector<std::size_t> buckets = wanted;
  if (ahead) add_ahead(buckets, order);
  std::erase_if(buckets, [&](std::size_t b) { return buckets_[b].status != Status::empty; });
  while (!buckets.empty()) {
    const std::uint32_t unit = group(buckets.front()).unit;
    const auto rest = unit == 0 ? buckets.begin() + 1 : std::stable_partition(buckets.begin(), buckets.end(), [&](std::size_t b) { return group(b).unit == unit; });
    gather_together({buckets.begin(), rest}, tensors, w);
    buckets.erase(buckets.begin(), rest);
  }
  for (const std::size_t b : wanted) wait(b, w);
}

// The stream between shards is not told apart from that within one, which waits for it.
void WeightGathers::gather_together(const std::vector<std::size_t>& buckets, TensorTable& tensors, ProgramWriter& w) {
  const std::uint32_t ready = w.record();
  const OnStream on(w, Stream::all_gather);
  w.wait(ready);
  const Layout& layout = setup().layout;
  const bool outside = setup().config->outer_sharding && outer_too_;
  const auto memory = [&](std::size_t b) {
    if (buckets_[b].whole.defined()) return;
    const std::uint64_t share = Layout::share(group(b), layout.shard.size());
    buckets_[b].whole = tensors.allocate(w, "model_weight_buffer[" + setup().parameter(group(b).parameters.front()).name + "]", group(b).dtype, group(b).numel);
    w.fill(buckets_[b].whole.slice.part(share * layout.shard.index_of(setup().context.rank), share), 0.0);
  };
  for (const std::size_t b : buckets) {
    if (!outside) break;
    memory(b);
    collective(b, true, w);
  }
  for (const std::size_t b : buckets) {
    buckets_[b].releasable = false;
    buckets_[b].status = Status::communicating;
    recycle(tensors, w);
    memory(b);
    collective(b, false, w);
    buckets_[b].gathered = w.record();
  }
}

void WeightGathers::collective(std::size_t bucket, bool outside, ProgramWriter& w) const {
  const Layout& layout = setup().layout;
  const std::uint64_t share = Layout::share(group(bucket), layout.shard.size());
  const Slice whole = buckets_[bucket].whole.slice, own = whole.part(share * layout.shard.index_of(setup().context.rank), share);
  const ProcessGroup& over = outside ? layout.outer : layout.shard;
  const std::uint64_t part = share / layout.outer.size();
  w.collective({.kind = CollectiveKind::all_gather,
                .purpose = Purpose::parameter,
                .group = over.id,
                .input = outside ? own.part(part * layout.outer.index_of(setup().context.rank), part) : own,
                .output = outside ? own : whole});
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
  for (std::size_t b = 0; b < buckets_.size(); ++b)
    if (std::exchange(buckets_[b].releasable, false)) release(b, tensors, w);
}

}  // namespace gradledger::megatron_fsdp
