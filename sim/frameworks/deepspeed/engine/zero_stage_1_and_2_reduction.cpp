// ZeRO stages 1 and 2: how a bucket is reduced.
#include "sim/frameworks/deepspeed/behaviour.h"
#include "sim/frameworks/deepspeed/engine/zero_stage_1_and_2.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

namespace gradledger {

// ---- one bucket: reduce, then keep what is owned ------------------------------------------------------------------------------------

void ZeroStage1And2::reduce_bucket(ProgramWriter& w) {
  const std::vector<EmptyEntry> empty = std::exchange(bucket_.empty, {});
  for (const EmptyEntry& entry : empty) require_owner(entry.parameter);
  auto next_empty = empty.begin();
  const auto keep_empty = [&](std::size_t behind) {
    for (; next_empty != empty.end() && next_empty->behind <= behind; ++next_empty)
      if (contiguous_ && keeping().looks_up_empty(next_empty->parameter)) kept_->keep_empty(keeping(), next_empty->parameter);
  };
  if (bucket_.entries.empty()) return keep_empty(0);
  const Stream producer = w.stream();
  if (overlap_ && contiguous_) wait_for_producers(w);
  {
    OnStream reduction(w, overlap_ ? Stream::communication : producer);
    if (!contiguous_) {
      average_separate(w);
    } else {
      const Slice bucket = contiguous_bucket();
      if (config().zero.reduce_scatter) average_runs(w, bucket);
      else average_whole(w, bucket);
    }
  }
  OnStream copies(w, copy_stream(producer));
  for (std::size_t i = 0; i < bucket_.entries.size(); ++i) {
    keep_empty(i);
    BucketEntry& entry = bucket_.entries[i];
    require_not_reduced(entry.parameter);
    already_reduced_[entry.parameter] = true;
    // Contiguous, only what the rank owns was copied back into the bucket.
    if (uses_grad_accum_ && behaviour().stage1_attr_reduction == Stage1AttrReduction::kept && (owns(entry.parameter) || !contiguous_))
      w.copy(grad_accum_[entry.parameter].slice, entry.gradient.slice);
    if (contiguous_ && owns(entry.parameter)) kept_->keep(w, keeping(), entry.parameter);
    let_go_of_reduced(w, entry.parameter, producer);
  }
  keep_empty(bucket_.entries.size());
  empty_bucket(w, producer);
}

// A reduction that raised on its way leaves the bucket as it was, with all of its gradients.
void ZeroStage1And2::empty_bucket(ProgramWriter& w, Stream producer) {
  OnStream allocator(w, allocator_of_reduced(producer));
  for (BucketEntry& entry : bucket_.entries) tensors_.clear(w, entry.gradient);
  bucket_.entries.clear();
  bucket_.elements = 0;
  bucket_.producers = {};
  bucket_.extra_large = false;
  if (bucket_.index != 0 && behaviour().overlap_bucket_index != OverlapBucketIndex::alternates) bucket_.index = 0;
}

// DeepSpeed#5868: before it a parameter larger than the bucket made the empty bucket before it be all-reduced.
void ZeroStage1And2::reduce_nothing(ProgramWriter& w) {
  if (!contiguous_ || config().zero.reduce_scatter) return;
  const Slice nothing = bucket_.buffers[bucket_.index].slice.part(0, 0);
  w.collective({.kind = CollectiveKind::all_reduce, .group = peers().id, .input = nothing, .output = nothing});
}

// What a contiguous bucket reduces: its filled part, or the one parameter that is larger than it.
Slice ZeroStage1And2::contiguous_bucket() const {
  const Slice buffer = bucket_.buffers[bucket_.index].slice;
  const std::uint64_t filled = bucket_.elements;
  // DeepSpeed#5268: until then the elements behind the filled part took part in the all-reduce.
  if (!bucket_.extra_large) return reduces_whole_buckets(config(), behaviour()) ? buffer : buffer.part(0, filled);
  // DeepSpeed#6993 put the parameter under its own dtype and looked it up under the communication dtype; DeepSpeed#7660 uses that for both.
  if (comm_dtype_ != model_dtype_ && behaviour().stage12_extra_large_key == ExtraLargeKey::model_dtype)
    throw FrameworkError{"RuntimeError", "start (0) + length (" + std::to_string(filled) + ") exceeds dimension size (" + std::to_string(config().zero.reduce_bucket_size) + ")"};
  return extra_large_gradient();
}

// What the parameter's gradient is by now: a backward without an epilogue, and a zero_grad after it, leave another in the bucket.
Slice ZeroStage1And2::extra_large_gradient() const {
  const BucketEntry& entry = bucket_.entries.front();
  const Tensor& attribute = uses_grad_accum_ ? grad_accum_[entry.parameter] : grad_[entry.parameter];
  if (!attribute.defined()) throw FrameworkError{"AttributeError", "'NoneType' object has no attribute 'view'"};
  return reduces_copy_ ? entry.gradient.slice : attribute.slice;
}

// Copies follow the reduction on its stream. On one of their own they would follow nothing.
Stream ZeroStage1And2::copy_stream(Stream producer) const {
  if (overlap_) return Stream::communication;
  return offload_ && behaviour().offload_copy_stream == OffloadCopyStream::copy ? Stream::copy : producer;
}

// The allocator ties memory to the stream that asked for it. That the reduction still uses it counts only where it was told (DeepSpeed#7965).
Stream ZeroStage1And2::allocator_of_reduced(Stream producer) const {
  return overlap_ && behaviour().overlap_lifetime == OverlapLifetime::after_reduction ? Stream::communication : producer;
}

void ZeroStage1And2::let_go_of_reduced(ProgramWriter& w, std::uint32_t parameter, Stream producer) {
  if (!partition_gradients_ || owns(parameter)) return;
  OnStream allocator(w, allocator_of_reduced(producer));
  if (overlap_ && !contiguous_) {
    Tensor later;
    tensors_.share(w, later, gradient_attribute(parameter));
    deferred_.push_back(later);
  }
  tensors_.clear(w, gradient_attribute(parameter));
}

// The reduction waits for what filled the bucket (DeepSpeed#8080: whichever streams did); the stream that goes on waits for the reductions before
// this one (DeepSpeed#5606), of which the last but one read the buffer that is filled next.
void ZeroStage1And2::wait_for_producers(ProgramWriter& w) {
  const Stream current = w.stream();
  const bool every = behaviour().overlap_producers == OverlapProducers::every_stream;
  for (std::size_t s = 0; s < stream_count; ++s) {
    const auto producer = static_cast<Stream>(s);
    if (every && !bucket_.extra_large ? !bucket_.producers[s] : producer != current) continue;
    w.set_stream(producer);
    const std::uint32_t produced = w.record();
    w.set_stream(Stream::communication);
    w.wait(produced);
  }
  w.set_stream(current);
  if (behaviour().overlap_producer_wait == OverlapProducerWait::earlier_reductions) wait_for_earlier_reductions(w);
}

void ZeroStage1And2::wait_for_earlier_reductions(ProgramWriter& w) const {
  std::uint32_t reduced = 0;
  {
    OnStream communication(w, Stream::communication);
    reduced = w.record();
  }
  w.wait(reduced);
}

// Contiguous, reduce_scatter: divided by the world in the model dtype first; then one all_reduce for the bucket, or one reduce for
// each owner, in the group that divides the parameter. Only an owner copies its stretches back, so what a rank does not own stays at
// local / world.
void ZeroStage1And2::average_runs(ProgramWriter& w, Slice bucket) {
  divide_runs(w, bucket);
  const bool to_owner = !config().zero.use_multi_rank_bucket_allreduce;
  std::vector<std::vector<Run>> together;  // in the order in which the first of each lies
  std::map<std::tuple<std::uint32_t, bool, std::uint32_t>, std::size_t> place;
  for (Run& run : owner_runs(w, bucket)) {
    const auto [at, fresh] = place.try_emplace({run.peers->id, run.of_experts, to_owner ? run.owner : 0}, together.size());
    if (fresh) together.emplace_back();
    together[at->second].push_back(run);
  }
  for (const std::vector<Run>& runs : together) reduce_flattened(w, runs, to_owner);
}

// DeepSpeed#6546: before it a bucket with experts was divided gradient by gradient, each by the ranks that have it.
void ZeroStage1And2::divide_runs(ProgramWriter& w, Slice bucket) {
  if (!averages()) return;
  if (!divides_experts_apart()) return w.divide(bucket, average_over());
  std::uint64_t at = 0;
  for (const BucketEntry& entry : bucket_.entries) {
    w.divide(bucket.part(at, entry.gradient.numel()), weights_.of(entry.parameter).peers().size() / sequence_ranks());
    at += entry.gradient.numel();
  }
}

bool ZeroStage1And2::divides_experts_apart() const {
  const auto of_expert = [this](const BucketEntry& entry) { return weights_.of(entry.parameter).of_experts(); };
  return behaviour().expert_average != ExpertAverage::with_the_bucket && std::any_of(bucket_.entries.begin(), bucket_.entries.end(), of_expert);
}

// DeepSpeed#8141: Muon takes whole matrices, so all that own a part of one keep all of it. Until then what a rank did not own stayed unreduced.
bool ZeroStage1And2::goes_to_every_owner(const FlatWeights& group, std::uint32_t p) const {
  if (!uses_muon(scenario()) || behaviour().muon_reduce_scatter != MuonReduceScatter::whole) return false;
  const std::uint32_t first = group.layout().first_owner(p);
  return group.layout().owned(first, p).numel < numel(p);
}

// The bucket cut where ownership changes, neighbours of one owner merged, but for what is added to the rank's sums. Where the bucket is reduced at once it
// does not matter which of the others owns what: their stretches are one run, so that no rank counts the ranks.
std::vector<ZeroStage1And2::Run> ZeroStage1And2::owner_runs(ProgramWriter& w, Slice bucket) {
  const bool at_once = config().zero.use_multi_rank_bucket_allreduce && bucket.numel <= config().zero.reduce_bucket_size;
  std::vector<Run> runs;
  std::uint64_t at = 0;
  for (const BucketEntry& entry : bucket_.entries) {
    const FlatWeights& group = weights_.of(entry.parameter);
    const std::uint32_t me = group.index_in_peers();
    const bool split = goes_to_every_owner(group, entry.parameter);
    const std::uint64_t end = at + entry.gradient.numel();
    for (std::uint32_t owner = group.layout().first_owner(entry.parameter), last = owner; at < end; owner = last + 1) {
      last = at_once && !split ? group.layout().last_owner_before(me, owner, entry.parameter) : owner;
      const std::uint64_t count = group.layout().owned_by(owner, last, entry.parameter);
      if (count == 0) continue;
      const Slice sum = owner == me ? kept_->sum_of(w, keeping(), entry.parameter) : Slice{};
      append_run(runs, {&group.peers(), group.of_experts(), owner, last, last - owner + 1, bucket.part(at, count), sum, split, split && owns(entry.parameter)},
                 at_once ? me : no_index);
      at += count;
    }
  }
  ensures(at == bucket.numel, "the owners' stretches fill the bucket");
  return runs;
}

// apart: the one owner whose stretches are not one run with those of others; no_index: each owner's are apart.
void ZeroStage1And2::append_run(std::vector<Run>& runs, const Run& next, std::uint32_t apart) {
  const bool joins =
      !runs.empty() && !runs.back().split && !next.split && next.sum.buffer == no_index && runs.back().peers->id == next.peers->id && runs.back().of_experts == next.of_experts;
  const bool same_owner = joins && runs.back().last == next.owner;
  if (!same_owner && !(joins && apart != no_index && runs.back().owner != apart && next.owner != apart)) return runs.push_back(next);
  runs.back().slice.numel += next.slice.numel;
  runs.back().owners += next.owners - (same_owner ? 1 : 0);
  runs.back().last = next.last;
}

// Runs that lie side by side are copied as one.
void ZeroStage1And2::flatten(ProgramWriter& w, Slice flat, const std::vector<Run>& runs, std::size_t first, std::size_t last) {
  std::uint64_t at = 0;
  while (first < last) {
    Slice stretch = runs[first++].slice;
    while (first < last && runs[first].slice.offset == stretch.offset + stretch.numel) stretch.numel += runs[first++].slice.numel;
    w.copy(flat.part(at, stretch.numel), stretch);
    at += stretch.numel;
  }
}

// Flatten, cast, reduce, cast back, copy back. Dispatched each time the flat size exceeds the bucket size.
void ZeroStage1And2::reduce_flattened(ProgramWriter& w, const std::vector<Run>& runs, bool to_owner) {
  const ProcessGroup& peers = *runs.front().peers;
  const std::uint32_t me = peers.index_of(rank()), root = runs.front().owner;
  // Up to 0.19.7 the one root's number among the expert's ranks was compared with the rank among all that average.
  const bool own_numbers = !to_owner || me == index_in_peers() || behaviour().expert_owner == ExpertOwner::expert_data_parallel;
  const std::uint32_t keeper = own_numbers ? me : index_in_peers();
  std::size_t first = 0;
  while (first < runs.size()) {
    std::size_t last = first;
    std::uint64_t total = 0;
    while (last < runs.size() && total <= config().zero.reduce_bucket_size) total += runs[last++].slice.numel;

    Tensor flat;
    const Slice data = flattened(w, runs, first, last, flat);
    Tensor cast;
    Slice wire = data;
    if (comm_dtype_ != bucket_dtype_) {
      cast = tensors_.allocate(w, "bucket_in_communication_dtype", comm_dtype_, total);
      wire = cast.slice;
      w.copy(wire, data);
    }
    // DeepSpeed#4957: until then once more what was divided gradient by gradient.
    if (averages() && divides_experts_apart() && behaviour().expert_average == ExpertAverage::twice) w.divide(wire, peers.size() / sequence_ranks());
    w.collective({.kind = to_owner ? CollectiveKind::reduce : CollectiveKind::all_reduce,
                  .group = peers.id,
                  .communicator = peers.communicator,
                  .root = to_owner ? peers.ranks[root] : 0,
                  .input = wire,
                  .output = wire});
    for (std::uint64_t i = first, at = 0; i < last; at += runs[i++].slice.numel)
      if (runs[i].sum.buffer != no_index) w.accumulate(runs[i].sum, wire.part(at, runs[i].slice.numel));
    if (cast.defined() && (!to_owner || root == me)) w.copy(data, wire);
    for (std::uint64_t at = 0; flat.defined() && first < last; ++first) {
      const Run& run = runs[first];
      if (run.owner == keeper || run.kept) w.copy(run.slice, data.part(at, run.slice.numel));
      at += run.slice.numel;
    }
    first = last;
    tensors_.drop(w, cast);
    tensors_.drop(w, flat);
  }
}

// Flattening one tensor is no copy.
Slice ZeroStage1And2::flattened(ProgramWriter& w, const std::vector<Run>& runs, std::size_t first, std::size_t last, Tensor& flat) {
  if (last - first == 1 && runs[first].owners == 1) return runs[first].slice;
  std::uint64_t total = 0;
  for (std::size_t i = first; i < last; ++i) total += runs[i].slice.numel;
  flat = tensors_.allocate(w, "flattened_bucket", bucket_dtype_, total);
  flatten(w, flat.slice, runs, first, last);
  return flat.slice;
}

// Contiguous, no reduce_scatter: the whole bucket is all-reduced in place, divided before or after by the pre- and postscale rules.
void ZeroStage1And2::average_whole(ProgramWriter& w, Slice bucket) {
  Tensor cast;
  Slice wire = bucket;
  if (comm_dtype_ != bucket_dtype_) {
    cast = tensors_.allocate(w, "bucket_in_communication_dtype", comm_dtype_, bucket.numel);
    wire = cast.slice;
    w.copy(wire, bucket);
  }
  const CollectiveCall call{.kind = CollectiveKind::all_reduce, .group = peers().id, .input = wire, .output = wire};
  const double factor = config().gradient_predivide_factor;
  if (!averages()) {
    w.collective(call);
  } else if (config().prescale_gradients) {
    w.divide(wire, average_over());
    w.collective(call);
  } else {
    if (factor != 1.0) w.multiply(wire, 1.0 / factor);
    w.collective(call);
    if (factor != peers().size()) w.multiply(wire, factor / average_over());  // live-37: ranks that share a sequence are peers, and not averaged over
  }
  add_to_sums(w, wire);
  if (cast.defined()) w.copy(bucket, wire);
  tensors_.drop(w, cast);
}

// The rank's parts of what was reduced in whole.
void ZeroStage1And2::add_to_sums(ProgramWriter& w, Slice reduced) {
  std::uint64_t at = 0;
  for (const BucketEntry& entry : bucket_.entries) {
    const OwnedPart part = owned(entry.parameter);
    const Slice sum = part.numel > 0 ? kept_->sum_of(w, keeping(), entry.parameter) : Slice{};
    if (sum.buffer != no_index) w.accumulate(sum, reduced.part(at + part.parameter_offset, part.numel));
    at += entry.gradient.numel();
  }
}

// Not contiguous: flattened copy, cast, divided by the world in the communication dtype, one all_reduce, cast and copied back on every rank.
void ZeroStage1And2::average_separate(ProgramWriter& w) {
  if (overlap_) {
    w.synchronize();
    for (Tensor& gradient : deferred_) tensors_.clear(w, gradient);
    deferred_.clear();
  }
  if (behaviour().separate_buckets == SeparateBuckets::dropped) return;
  const std::uint64_t total = bucket_.elements;
  Tensor flat = tensors_.allocate(w, "flattened_bucket", bucket_dtype_, total);
  std::uint64_t at = 0;
  for (const BucketEntry& entry : bucket_.entries) {
    w.copy(flat.slice.part(at, entry.gradient.numel()), entry.gradient.slice);
    at += entry.gradient.numel();
  }
  Tensor cast;
  Slice wire = flat.slice;
  if (comm_dtype_ != bucket_dtype_) {
    cast = tensors_.allocate(w, "bucket_in_communication_dtype", comm_dtype_, total);
    wire = cast.slice;
    w.copy(wire, flat.slice);
  }
  if (averages()) w.divide(wire, average_over());
  w.collective({.kind = CollectiveKind::all_reduce, .group = peers().id, .input = wire, .output = wire});
  add_to_sums(w, wire);
  if (cast.defined()) w.copy(flat.slice, wire);
  at = 0;
  for (const BucketEntry& entry : bucket_.entries) {
    w.copy(entry.gradient.slice, flat.slice.part(at, entry.gradient.numel()));
    at += entry.gradient.numel();
    if (!uses_grad_accum_) holds_no_sum(entry.parameter);
  }
  tensors_.drop(w, cast);
  tensors_.drop(w, flat);
}

}  // namespace gradledger
