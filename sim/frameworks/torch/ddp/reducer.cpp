#include "sim/frameworks/torch/ddp/reducer.h"

#include <algorithm>
#include <string>
#include <utility>

#include "sim/frameworks/torch/ddp/errors.h"

namespace gradledger::torch {

ProcessGroup averaging_ranks(const EngineContext& context) {
  return group_named(*context.scenario, context.timeline->contract.groups, averaging_group(*context.scenario), context.rank);
}

bool has_dtensors(const EngineContext& context) {
  const auto& groups = context.timeline->contract.groups;
  return groups.contains("tp") && group_named(*context.scenario, groups, "tp", context.rank).size() > 1;
}

void put_dtensors_last(const EngineContext& context, const DdpConfig& config, std::vector<std::uint32_t>& ready) {
  if (has_dtensors(context)) std::stable_partition(ready.begin(), ready.end(), [&](std::uint32_t p) { return config.is_plain(context.scenario->parameters[p].name); });
}

Reducer::Reducer(const EngineContext& context, const DdpConfig& config, std::vector<std::uint32_t> parameters)
    : context_(context), data_parallel_(averaging_ranks(context)), config_(&config), parameters_(std::move(parameters)), number_of_(context.scenario->parameters.size(), no_index) {
  for (std::uint32_t v = 0; v < parameters_.size(); ++v) number_of_[parameters_[v]] = v;
  ready_.resize(parameters_.size());
  used_.resize(parameters_.size());
  hooks_triggered_.resize(parameters_.size());
}

void Reducer::initialise(const Pass& pass) {
  const BufferId map = pass.w.declare("local_used_map", Dtype::int32, parameters_.size());
  pass.w.allocate(map);
  used_map_ = pass.w.whole(map);
  std::vector<std::uint32_t> order(parameters_.size());
  for (std::uint32_t v = 0; v < order.size(); ++v) order[v] = v;
  initialize_buckets(pass, initial_buckets(sized(order), initial_limits(*config_)));
}

std::vector<SizedParameter> Reducer::sized(const std::vector<std::uint32_t>& order) const {
  std::vector<SizedParameter> out;
  for (const std::uint32_t v : order) out.push_back({v, context_.scenario->parameters[parameters_[v]].numel, context_.scenario->dtype_of(parameters_[v])});
  return out;
}

// New buckets exist before the old ones go.
void Reducer::initialize_buckets(const Pass& pass, const BucketAssignment& assignment) {
  const std::vector<Bucket> before = std::exchange(buckets_, {});
  bucket_of_.assign(parameters_.size(), 0);
  place_in_.assign(parameters_.size(), 0);
  for (const std::vector<std::uint32_t>& variables : assignment) {
    Bucket bucket;
    bucket.variables = variables;
    for (const SizedParameter& p : sized(variables)) {
      bucket_of_[p.index] = static_cast<std::uint32_t>(buckets_.size());
      place_in_[p.index] = static_cast<std::uint32_t>(bucket.offsets.size());
      bucket.offsets.push_back(bucket.numel);
      bucket.numel += p.numel;
    }
    buckets_.push_back(std::move(bucket));
  }
  for (std::uint32_t b = 0; b < buckets_.size() && !config_->lazy_bucket_allocation; ++b) initialize_bucket_storage(pass, b);
  for (const Bucket& bucket : before) pass.g.tensors.drop(pass.w, bucket.gradients);
}

// Gradients that are views move into it: in a lazy bucket also the first one of a backward, which autograd made by then.
void Reducer::initialize_bucket_storage(const Pass& pass, std::uint32_t bucket) {
  Bucket& of = buckets_[bucket];
  if (of.gradients.defined()) return;
  const Dtype dtype = context_.scenario->dtype_of(parameters_[of.variables.front()]);
  of.gradients = pass.g.tensors.allocate(pass.w, "buckets[" + std::to_string(bucket) + "].gradients", dtype, of.numel);
  for (const std::uint32_t v : of.variables)
    if (config_->gradient_as_bucket_view && pass.g.grad[parameters_[v]].defined()) copy_into_bucket(pass, v);
}

// What gradients view stays until they are given up.
void Reducer::release_bucket_storage(const Pass& pass) {
  if (!config_->lazy_bucket_allocation) return;
  for (Bucket& bucket : buckets_) {
    pass.g.tensors.clear(pass.w, bucket.gradients);
    bucket.has_future = false;
  }
}

Slice Reducer::view(std::uint32_t variable) const {
  const Bucket& bucket = buckets_[bucket_of_[variable]];
  return bucket.gradients.slice.part(bucket.offsets[place_in_[variable]], context_.scenario->parameters[parameters_[variable]].numel);
}

// ---- forward ----------------------------------------------------------------------------------------------------------------------

void Reducer::ensure_prior_reduction_finished() const {
  if (!require_finalize_) return;
  std::vector<std::uint32_t> unmarked;
  for (std::uint32_t v = 0; v < ready_.size(); ++v)
    if (!ready_[v]) unmarked.push_back(v);
  if (manual_finalization_required_ && unmarked.empty()) throw unfinalized_backward();
  throw unfinished_reduction(*config_, context_.rank, unmarked);
}

void Reducer::rebuild_buckets(const Pass& pass) {
  ensure_prior_reduction_finished();
  if (!should_rebuild_buckets() || rebuilt_order_.empty()) return;
  const BucketAssignment assignment = rebuilt_buckets(sized(order_of_rank_0()), rebuilt_limits(*config_));
  sync_bucket_indices(pass, assignment);
  has_rebuilt_ = true;
  rebuilt_order_.clear();
  initialize_buckets(pass, assignment);
}

// The assignment of rank 0 is everybody's. What it sends is known here without asking: the order in which its hooks fired, and behind it what a static graph did
// not use in its first iteration.
std::vector<std::uint32_t> Reducer::order_of_rank_0() const {
  const std::uint32_t first = data_parallel_.ranks.front();
  const auto hooks_of = [&](std::uint32_t backward) {
    std::vector<std::uint32_t> fired;
    if (backward != no_index && context_.timeline->backwards[backward].micro_batch[first] != no_contribution)
      fired = context_.timeline->ready_order(*context_.scenario, backward, first);
    put_dtensors_last(context_, *config_, fired);
    std::erase_if(fired, [this](std::uint32_t p) { return !manages(p); });
    for (std::uint32_t& p : fired) p = number_of_[p];
    return fired;
  };
  std::vector<std::uint32_t> out = hooks_of(rebuilt_in_);
  if (static_graph_after_first_iteration() && !out.empty()) {
    const std::vector<std::uint32_t> used = hooks_of(first_iteration_in_);
    for (std::uint32_t v = 0; v < parameters_.size(); ++v)
      if (std::find(used.begin(), used.end(), v) == used.end() && std::find(out.begin(), out.end(), v) == out.end()) out.push_back(v);
  }
  return out.size() == rebuilt_order_.size() ? out : rebuilt_order_;
}

void Reducer::sync_bucket_indices(const Pass& pass, const BucketAssignment& assignment) {
  const auto send = [&](const std::string& name, const std::vector<std::uint32_t>& values) {
    Tensor tensor = pass.g.tensors.allocate(pass.w, name, Dtype::int32, values.size());
    for (std::uint32_t i = 0; i < values.size(); ++i) pass.w.fill(tensor.slice.part(i, 1), values[i]);
    pass.w.collective({.kind = CollectiveKind::broadcast, .purpose = Purpose::control, .group = pass.g.group, .input = tensor.slice, .output = tensor.slice});
    pass.g.tensors.drop(pass.w, tensor);
  };
  std::vector<std::uint32_t> bucket_of(parameters_.size() + 1), sizes;
  for (std::uint32_t b = 0; b < assignment.size(); ++b) {
    sizes.push_back(static_cast<std::uint32_t>(assignment[b].size()));
    for (const std::uint32_t v : assignment[b]) bucket_of[v] = b;
  }
  bucket_of.back() = static_cast<std::uint32_t>(assignment.size());
  send("bucket_indices", bucket_of);
  send("bucket_sizes", sizes);
}

void Reducer::prepare_for_backward(const std::vector<std::uint32_t>& reachable) {
  expect_autograd_hooks_ = true;
  next_bucket_ = 0;
  for (Bucket& bucket : buckets_) bucket.pending = static_cast<std::uint32_t>(bucket.variables.size());
  hooks_left_ = hooks_triggered_;
  has_marked_unused_ = false;
  std::fill(ready_.begin(), ready_.end(), false);
  if (!dynamic_graph_find_unused()) return;
  unused_.clear();
  for (std::uint32_t v = 0; v < parameters_.size(); ++v)
    if (std::find(reachable.begin(), reachable.end(), parameters_[v]) == reachable.end()) unused_.push_back(v);
}

// ---- backward ---------------------------------------------------------------------------------------------------------------------

void Reducer::autograd_hook(const Pass& pass, std::uint32_t parameter, std::uint32_t ordinal) {
  const std::uint32_t v = number_of_[parameter];
  if (!std::exchange(first_hook_called_, true)) ++backward_calls_;
  // A hook of the loop's may have stepped, and taken the gradient away.
  if ((dynamic_graph_find_unused() || static_graph_first_iteration()) && pass.g.grad[parameter].defined()) used_[v] = true;
  if (static_graph_first_iteration()) {
    ++hooks_triggered_[v];
    first_iteration_in_ = ordinal;
    return;
  }
  if (!expect_autograd_hooks_) return;
  if (!std::exchange(has_marked_unused_, true))
    for (const std::uint32_t unused : unused_) mark_variable_ready(pass, unused);
  if (static_graph_after_first_iteration()) {
    if (hooks_left_[v] == 0) throw graph_has_changed();
    if (--hooks_left_[v] > 0) return;
  }
  if (should_rebuild_buckets()) {
    rebuilt_order_.push_back(v);
    rebuilt_in_ = ordinal;
  }
  mark_variable_ready(pass, v);
}

void Reducer::mark_variable_ready(const Pass& pass, std::uint32_t variable) {
  if (ready_[variable]) throw marked_twice(variable);
  ready_[variable] = true;
  require_finalize_ = true;
  mark_variable_ready_dense(pass, variable);
  if (Bucket& bucket = buckets_[bucket_of_[variable]]; --bucket.pending == 0) {
    flush_deferred_copies(pass, bucket);
    mark_bucket_ready(pass);
  }
  if (next_bucket_ < buckets_.size()) return;
  if (dynamic_graph_find_unused()) all_reduce_local_used_map(pass);
  finalize_queued_ = !manual_finalization_required_;
}

// The slice of the bucket becomes this rank's share of the average; a hook divides itself.
void Reducer::mark_variable_ready_dense(const Pass& pass, std::uint32_t variable) {
  initialize_bucket_storage(pass, bucket_of_[variable]);
  const Tensor& grad = pass.g.grad[parameters_[variable]];
  const Slice slice = view(variable);
  if (!grad.defined()) {
    // zero_grad came between a micro-batch that used it and this backward, which does not.
    if ((dynamic_graph_find_unused() || static_graph_first_iteration()) && used_[variable]) throw undefined_and_used();
    return pass.w.fill(slice, 0.0);
  }
  check_grad_layout(pass, grad, slice);
  if (batched()) return;  // with all of its bucket
  const bool divides = !hook_divides();
  if (grad.slice.buffer == slice.buffer) {
    if (divides) pass.w.divide(slice, world());
    return;
  }
  copy_into_bucket(pass, variable);
  if (divides) pass.w.multiply(slice, 1.0 / world());
}

void Reducer::check_grad_layout(const Pass& pass, const Tensor& grad, Slice view) const {
  const Dtype expected = pass.w.declaration(view.buffer).dtype, found = pass.w.declaration(grad.slice.buffer).dtype;
  if (found != expected) throw gradient_of_another_dtype(expected, found);
}

void Reducer::copy_into_bucket(const Pass& pass, std::uint32_t variable) {
  Tensor& grad = pass.g.grad[parameters_[variable]];
  const Slice slice = view(variable);
  pass.w.copy(slice, grad.slice);
  if (config_->gradient_as_bucket_view) pass.g.tensors.share(pass.w, grad, {slice});
}

// batched_grad_copy: one copy of all gradients of a bucket, then one division of all of it. A bucket whose reduction is skipped is divided too.
void Reducer::flush_deferred_copies(const Pass& pass, const Bucket& bucket) {
  if (!batched()) return;
  for (const std::uint32_t v : bucket.variables) {
    const Tensor& grad = pass.g.grad[parameters_[v]];
    if (grad.defined() && grad.slice.buffer != bucket.gradients.slice.buffer) copy_into_bucket(pass, v);
  }
  if (!hook_divides()) pass.w.divide(bucket.gradients.slice, world());
}

// Buckets are reduced in their order: a later one that is full waits for those before it.
void Reducer::mark_bucket_ready(const Pass& pass) {
  for (; next_bucket_ < buckets_.size() && buckets_[next_bucket_].pending == 0; ++next_bucket_) {
    if (!should_skip(buckets_[next_bucket_])) all_reduce_bucket(pass, buckets_[next_bucket_]);
  }
}

bool Reducer::should_skip(const Bucket& bucket) const {
  return config_->skip_all_reduce_unused_params &&
         std::all_of(bucket.variables.begin(), bucket.variables.end(), [&](std::uint32_t v) { return std::find(unused_.begin(), unused_.end(), v) != unused_.end(); });
}

void Reducer::all_reduce_local_used_map(const Pass& pass) {
  for (std::uint32_t v = 0; v < parameters_.size(); ++v) pass.w.fill(used_map_.part(v, 1), used_[v] ? 1 : 0);
  const std::uint32_t filled = pass.w.record();
  OnStream communication(pass.w, Stream::communication);
  pass.w.wait(filled);
  pass.w.collective({.purpose = Purpose::control, .group = pass.g.group, .input = used_map_, .output = used_map_});
  used_map_work_ = pass.w.record();
}

// static_graph reduces everything at the end of its first iteration, in which it counts.
void Reducer::delay_all_reduce(const Pass& pass) {
  all_reduce_local_used_map(pass);
  unused_.clear();
  for (std::uint32_t v = 0; v < parameters_.size(); ++v) {
    if (hooks_triggered_[v] == 0) unused_.push_back(v);
    require_finalize_ = true;
    mark_variable_ready_dense(pass, v);
  }
  for (const Bucket& bucket : buckets_) flush_deferred_copies(pass, bucket);
  for (Bucket& bucket : buckets_) all_reduce_bucket(pass, bucket);
  next_bucket_ = buckets_.size();
  finalize_queued_ = !manual_finalization_required_;
}

// ---- the end of a backward --------------------------------------------------------------------------------------------------------

std::optional<Slice> Reducer::finalize_backward(const Pass& pass) {
  finalize_queued_ = false;
  if (!expect_autograd_hooks_) throw internal_assert("expect_autograd_hooks_", 1732);
  if (static_graph_after_first_iteration() && should_rebuild_buckets()) rebuilt_order_.insert(rebuilt_order_.end(), unused_.begin(), unused_.end());
  expect_autograd_hooks_ = false;
  first_hook_called_ = false;
  require_finalize_ = false;
  finalize_at_ = 0;
  return finalize_dense(pass);
}

void Reducer::set_manual_finalization_required(bool required) {
  if (required != manual_finalization_required_ && expect_autograd_hooks_) throw required_too_late();
  manual_finalization_required_ = required;
}

std::optional<Slice> Reducer::finalize_backward_manual(const Pass& pass) {
  if (!manual_finalization_required_) throw finalization_not_required();
  if (!require_finalize_) throw nothing_to_finalize();
  if (next_bucket_ < buckets_.size()) throw buckets_not_ready(next_bucket_, buckets_.size());
  return finalize_backward(pass);
}

std::optional<Slice> Reducer::finalize_goes_on(const Pass& pass, bool used) {
  std::size_t at = finalize_at_;
  for (const Bucket& bucket : buckets_) {
    if (at < bucket.variables.size()) {
      used_[bucket.variables[at]] = used;
      if (bucket.has_future) finalize_variable(pass, bucket.variables[at], !used);
      break;
    }
    at -= bucket.variables.size();
  }
  ++finalize_at_;
  return finalize_dense(pass);
}

// Bucket by bucket, from finalize_at_ on. A parameter that was not used here may have been elsewhere: the reduced map says.
std::optional<Slice> Reducer::finalize_dense(const Pass& pass) {
  std::size_t at = 0;
  for (Bucket& bucket : buckets_)
    for (std::size_t i = 0; i < bucket.variables.size(); ++i, ++at) {
      if (at < finalize_at_) continue;
      finalize_at_ = at;
      if (bucket.work != no_index) pass.w.wait(std::exchange(bucket.work, no_index));
      if (bucket.compressed.defined()) pass.g.tensors.clear(pass.w, bucket.compressed);
      const std::uint32_t v = bucket.variables[i];
      const bool has_map = config_->static_graph || config_->find_unused_parameters;
      if (has_map && !used_[v] && !used_map_reduced_) {
        if (used_map_work_ != no_index) pass.w.wait(std::exchange(used_map_work_, no_index));
        return used_map_.part(v, 1);
      }
      // The future of an earlier reduction stays with an eager bucket, which is then taken for reduced, whatever is in it.
      if (bucket.has_future) finalize_variable(pass, v, has_map && !used_[v]);
    }
  used_map_reduced_ = config_->static_graph;
  if (used_map_work_ != no_index) pass.w.wait(std::exchange(used_map_work_, no_index));
  if (dynamic_graph_find_unused()) std::fill(used_.begin(), used_.end(), false);
  release_bucket_storage(pass);
  return std::nullopt;
}

void Reducer::finalize_variable(const Pass& pass, std::uint32_t variable, bool globally_unused) {
  if (globally_unused || config_->optimizer_in_backward) return;
  Tensor& grad = pass.g.grad[parameters_[variable]];
  const Slice slice = view(variable);
  if (config_->gradient_as_bucket_view) {
    if (!grad.defined()) return pass.g.tensors.share(pass.w, grad, {slice});
    if (grad.slice.buffer != slice.buffer) throw not_a_bucket_view();
    return;
  }
  if (!grad.defined()) grad = pass.g.tensors.allocate(pass.w, context_.scenario->parameters[parameters_[variable]].name + ".grad", dtype_of_future(variable), slice.numel);
  pass.w.copy(grad.slice, slice);
}

}  // namespace gradledger::torch
