// What a loop does with gradients: steps of the optimizer and of a gradient scaler, zero_grad, clipping.
#include <algorithm>
#include <map>

#include "sim/engine/clipping.h"
#include "sim/engine/loop_norm.h"
#include "sim/frameworks/torch/fsdp1/errors.h"
#include "sim/frameworks/torch/fsdp1/fully_sharded.h"
#include "sim/frameworks/plain_step.h"
#include "sim/frameworks/torch/loop_step.h"
#include "sim/frameworks/torch/scalar_types.h"
#include "sim/scenario/layout.h"

namespace gradledger::torch::flat_sharded {

void FullyShardedDataParallel::step(const events::Step& event, const Pass& pass) {
  if (!scaler_.enabled() || event.past_scaler) return optimizer_step(pass);
  if (!scaler_.unscaled()) unscale(pass);
  check_inf_checks(scaler_);
  // Nothing in a linear run overflows but what the script plants.
  if (linear() && context_.timeline->planted.empty()) return scaler_update(false, pass);
  read(pass.w, Stage::found_inf, found_inf_);
}

void FullyShardedDataParallel::scaler_update(bool found_inf, const Pass& pass) {
  stepped_ = true;
  end_scaled_step(scaler_, found_inf, pass.w, [&] { optimizer_step(pass); });
}

// Up to a gradient that has another size than its parameter: a step that raises has changed those before it, and the rest of its group has a state.
void FullyShardedDataParallel::optimizer_step(const Pass& pass) {
  OnStream on(pass.w, optimizer_stream());
  std::vector<Trained> all;
  std::optional<FrameworkError> error;
  std::uint64_t group = 0;  // that raises
  for (const Listed& listed : optimizer_order()) {
    if (error && group_of(listed) != group) break;
    take_state(listed);
    if (error) continue;
    for (const Trained& part : trained_parts(listed, error, pass.w)) all.push_back(part);
    group = group_of(listed);
  }
  std::vector<ViewPiece> applied;
  for (const Trained& part : all) applied.push_back({part.gradient, static_cast<std::int32_t>(part.parameter), part.offset});
  pass.w.observe(pass.w.view("param.grad", std::move(applied)), Role::applied_gradient, gradient_scale_, false);
  for (const Trained& part : all) update(part, pass);
  stepped_ = true;
  if (error) throw FrameworkError(*error);
  pass.w.report(StepFact::updated, 1.0);
}

// Groups in their order, and in each of them its parameters; without groups all as modules have them.
std::vector<FullyShardedDataParallel::Listed> FullyShardedDataParallel::optimizer_order() const {
  std::vector<Listed> out;
  for (std::uint32_t m = 0; m < module_count(); ++m) {
    const std::size_t parts = shared_.handles[m].layout().parts.size(), at_a_time = shared_.handles[m].use_orig_params() ? 1 : std::max<std::size_t>(parts, 1);
    for (std::size_t i = 0; i < parts; i += at_a_time) out.push_back({m, i, i + at_a_time});
  }
  const std::vector<OptimizerGroup>& groups = scenario().engine.param_groups;
  if (groups.empty()) return out;
  std::map<std::uint32_t, std::size_t> place;  // by parameter
  for (const OptimizerGroup& group : groups)
    for (const std::uint32_t p : group.parameters) place.try_emplace(p, place.size());
  const auto first = [&](const Listed& listed) {
    std::size_t at = place.size();
    for (std::size_t i = listed.begin; i < listed.end; ++i)
      if (const auto of = place.find(shared_.handles[listed.module].layout().parts[i].parameter); of != place.end()) at = std::min(at, of->second);
    return at;
  };
  std::stable_sort(out.begin(), out.end(), [&](const Listed& a, const Listed& b) { return first(a) < first(b); });
  return out;
}

// The first that has one of its parameters; without groups there is one.
std::uint64_t FullyShardedDataParallel::group_of(const Listed& listed) const {
  const std::vector<OptimizerGroup>& groups = scenario().engine.param_groups;
  for (std::size_t g = 0; g < groups.size(); ++g)
    for (std::size_t i = listed.begin; i < listed.end; ++i)
      if (std::count(groups[g].parameters.begin(), groups[g].parameters.end(), shared_.handles[listed.module].layout().parts[i].parameter) > 0) return g;
  return groups.size();
}

// Of all parameters of a group with a gradient, before any of them steps.
void FullyShardedDataParallel::take_state(const Listed& listed) {
  const FlatParamHandle& h = handle_of(listed.module);
  if (!h.use_orig_params() && h.grad.defined()) state_numel_.try_emplace(listed.module, h.data_numel());
}

// A flat parameter, its gradient and its moments are each as large as they were when they were made. PyTorch takes one element for as many as it needs, where
// it reads it. The decay of SGD and Adam adds the weights to the gradient first. Precondition: the gradient is there.
std::optional<FrameworkError> FullyShardedDataParallel::misfit(const FlatParamHandle& h, std::uint32_t parameter) const {
  const OptimizerConfig optimizer = scenario().engine.optimizer_of(parameter);
  const std::uint64_t data = h.data_numel();
  std::uint64_t grad = h.grad.numel();
  if (optimizer.weight_decay != 0 && optimizer.type != OptimizerType::adamw) {
    if (grad != data && grad != 1 && data != 1) return cannot_be_added(grad, data);
    grad = std::max(grad, data);
  }
  if (!optimizers_[parameter].has_moments()) return grad == data ? std::nullopt : std::optional(cannot_be_added(data, grad));
  const std::uint64_t state = state_numel_.at(h.module());
  if (grad != state && grad != 1) return cannot_be_added(state, grad);
  return state == data && grad == data ? std::nullopt : std::optional(cannot_be_added(data, std::max(state, grad)));
}

// AdamW's comes before all that may raise. Whether there is any.
bool FullyShardedDataParallel::decay(const FlatParamHandle& h, std::uint32_t parameter, ProgramWriter& w) const {
  const OptimizerConfig optimizer = scenario().engine.optimizer_of(parameter);
  if (optimizer.type != OptimizerType::adamw || optimizer.weight_decay == 0) return false;
  w.multiply(h.data_tensor().slice, 1.0 - optimizer.learning_rate * optimizer.weight_decay);
  return true;
}

// An original parameter is in the rank's shard, whatever its gradient is of. A flat parameter is what its data is: gathered where a backward raised. Adam
// counts the step of a parameter before it raises.
std::vector<FullyShardedDataParallel::Trained> FullyShardedDataParallel::trained_parts(const Listed& listed, std::optional<FrameworkError>& error, ProgramWriter& w) {
  FlatParamHandle& h = handle_of(listed.module);
  std::vector<Trained> out;
  const bool gathered = !h.use_orig_params() && h.uses_sharded_strategy() && h.data == Data::unsharded;
  if (!h.use_orig_params() && h.grad.defined()) {
    const std::uint32_t first = h.layout().parts[listed.begin].parameter;
    bool changes = true;
    if ((error = misfit(h, first))) {
      for (std::size_t i = listed.begin; i < listed.end; ++i) optimizers_[h.layout().parts[i].parameter].begin_step();
      changes = decay(h, first, w);
    }
    h.views_changed_in_place = changes && (gathered || !h.uses_sharded_strategy());
  }
  for (std::size_t i = listed.begin; i < listed.end && !error; ++i) {
    const Part& part = h.layout().parts[i];
    Layout::Piece piece = h.layout().piece(part, shared_.shard_index());
    const bool whole = gathered && piece.numel != part.numel;
    if (gathered) piece = {part.offset, 0, part.numel};
    const Slice weights = gathered ? h.full_param.slice : h.local_shard.slice;
    Slice gradient = h.grad.slice;
    if (h.use_orig_params()) {
      gradient = h.origs[i].trained_grad().slice;
      if (!h.origs[i].trained_grad().defined()) continue;
      if (gradient.numel != piece.numel && gradient.numel != 1) {
        error = cannot_be_added(piece.numel, gradient.numel);
        optimizers_[part.parameter].begin_step();
        break;
      }
    } else if (!h.grad.defined()) {
      continue;
    } else if (piece.numel > 0) {
      gradient = gradient.part(piece.offset, piece.numel);
    }
    if (piece.numel > 0) out.push_back({part.parameter, weights.part(piece.offset, piece.numel), gradient, piece.parameter_offset, whole});
  }
  return out;
}

const BaseOptimizer& FullyShardedDataParallel::moments_of(const Trained& part, ProgramWriter& w) {
  const std::uint32_t p = part.parameter;
  if (!part.of_gathered || !optimizers_[p].has_moments()) return optimizers_[p];
  const auto [at, made] = gathered_.try_emplace(p, scenario().engine.optimizer_of(p), false);
  if (made) at->second.initialise(w, parameter(p).numel, "[" + parameter(p).name + "] of what was gathered");
  return at->second;
}

// On the stream that the caller is on. fp32 takes the optimizer's kernel. Others have SGD alone: its one multiplication is exact, as admission sees to it.
void FullyShardedDataParallel::update(const Trained& part, const Pass& pass) {
  ProgramWriter& w = pass.w;
  const std::uint32_t p = part.parameter;
  const Slice weights = part.weights, gradient = part.gradient;
  const Dtype dtype = scenario().dtype_of(p), given = w.declaration(gradient.buffer).dtype;
  if (dtype == Dtype::float32 && given == dtype && weights.numel == gradient.numel) {
    optimizers_[p].begin_step();
    return moments_of(part, w).update_as_step(optimizers_[p].steps(), w, weights, gradient, 0);
  }
  const OptimizerConfig& given_optimizer = scenario().engine.optimizer_of(p);
  const double learning_rate = given_optimizer.learning_rate;
  if (dtype == Dtype::float32 && given != dtype && given_optimizer.type != OptimizerType::sgd) throw moments_of_another_dtype(given);
  if (weights.numel == gradient.numel) return low_precision_sgd(shared_.tensors, w, parameter(p).name, dtype, weights, gradient, learning_rate);
  for (std::uint32_t i = 0; i < weights.numel; ++i) low_precision_sgd(shared_.tensors, w, parameter(p).name, dtype, weights.part(i, 1), gradient, learning_rate);
}

// A view that took a parameter's place is an attribute of the module, and none of the parameters that it lists.
std::vector<Tensor> FullyShardedDataParallel::gradients(bool of_optimizer) const {
  std::vector<Tensor> out;
  for (const FlatParamHandle& h : shared_.handles) {
    if (!h.use_orig_params() && h.grad.defined()) out.push_back(h.grad);
    for (const OrigParam& orig : h.origs)
      if (const Tensor& grad = orig.trained_grad(); grad.defined() && (of_optimizer || !orig.replaced)) out.push_back(grad);
  }
  return out;
}

// What one rank found all know, where the scaler is FSDP's own.
void FullyShardedDataParallel::unscale(const Pass& pass) {
  check_unscale(scaler_);
  OnStream on(pass.w, optimizer_stream());
  pass.w.fill(found_inf_, 0);
  const std::vector<Tensor> all = gradients(true);
  for (const Tensor& grad : all)
    if (pass.w.declaration(grad.slice.buffer).dtype == Dtype::float16 && config_->plain_grad_scaler) throw FrameworkError{"ValueError", "Attempting to unscale FP16 gradients."};
  for (const Tensor& grad : all) {
    if (grad.numel() == 0) continue;
    pass.w.check_finite(found_inf_, grad.slice);
    if (scaler_.unscale_factor() != 1.0) pass.w.multiply(grad.slice, scaler_.unscale_factor());
  }
  // ShardedGradScaler has a flag, and asks the others, on a rank without a gradient too: its shards may have no elements.
  scaler_.set_unscaled(!config_->plain_grad_scaler || !all.empty());
  gradient_scale_ = 1.0;
  if (config_->plain_grad_scaler || scenario().world_size == 1) return;
  const ProcessGroup world = group_named(scenario(), context_.timeline->contract.groups, "world", context_.rank);
  pass.w.collective({.op = ReduceOp::max, .purpose = Purpose::overflow, .group = world.id, .input = found_inf_, .output = found_inf_});
}

// With original parameters the optimizer knows views: the flat gradient itself stays until the next forward. So does what is saved of a shard.
void FullyShardedDataParallel::zero_grad(bool set_to_none, bool of_module, const Pass& pass) {
  OnStream on(pass.w, optimizer_stream());
  for (FlatParamHandle& h : shared_.handles) {
    if (h.use_orig_params() && of_module && !h.exposes_params) continue;
    std::vector<Tensor*> known;
    if (!h.use_orig_params()) known.push_back(&h.grad);
    for (OrigParam& orig : h.origs)
      if (!of_module || !orig.replaced) known.push_back(&orig.trained_grad());
    for (Tensor* grad : known) {
      if (!grad->defined()) continue;
      if (set_to_none) shared_.tensors.clear(pass.w, *grad);
      else if (grad->numel() > 0) pass.w.fill(grad->slice, 0.0);
    }
  }
}

// ---- clipping ---------------------------------------------------------------------------------------------------------------------

// Without shards every rank has the whole gradients, and asks no other.
void FullyShardedDataParallel::clip(const events::ClipGradients& event, const Pass& pass) {
  if (linear()) return;  // the ledger asks where contributions go, not how long they are
  const ProcessGroup over = group_named(scenario(), context_.timeline->contract.groups, context_.timeline->group_names[event.over], context_.rank);
  const bool own = over.size() == scenario().world_size;  // the wrapper's method, or PyTorch's function
  if (own) lazy_init(pass);
  if (own && shared_.states[0] != TrainingState::idle) throw not_idle();
  OnStream on(pass.w, optimizer_stream());
  clip_ = {event.max_norm, !own, own && shared_.strategy != Strategy::no_shard, Dtype::float32};
  const std::vector<Tensor> all = gradients(clip_.of_optimizer);
  if (clip_.of_shards) {
    norm_of_shards(all, pass.w);
  } else {
    clip_.factor = dtype_of_norms(pass.w, all);
    emit_norm(pass.w, shared_.tensors, all, {norm_, one_, norm_squared_}, true);
    pass.w.report(StepFact::loop_norm, norm_, 1.0);
  }
  read(pass.w, Stage::clip_norm, norm_);
}

// In fp32 whatever gradients are, over all ranks. What is returned has the dtype of the rank's gradients.
void FullyShardedDataParallel::norm_of_shards(const std::vector<Tensor>& gradients, ProgramWriter& w) {
  emit_norm(w, shared_.tensors, gradients, {norm_, one_, norm_squared_}, false);
  emit_norms_over(w, shared_.tensors, norm_, norm_squared_, Dtype::float32, shared_.modules.shard);
  const Dtype returned = dtype_of_norms(w, gradients);
  if (returned == Dtype::float32) return w.report(StepFact::loop_norm, norm_, 1.0);
  w.copy(one_, norm_);
  round_norms(w, shared_.tensors, one_, returned);
  w.report(StepFact::loop_norm, one_, 1.0);
}

void FullyShardedDataParallel::clip_by(double norm, const Pass& pass) {
  OnStream on(pass.w, optimizer_stream());
  const float factor = loop_clip_factor(norm, clip_.max_norm, clip_.factor);
  for (const Tensor& grad : gradients(clip_.of_optimizer)) {
    if (grad.numel() == 0) continue;
    pass.w.multiply(grad.slice, clip_.of_shards ? rounded_to(pass.w.declaration(grad.slice.buffer).dtype, factor) : factor);
  }
}

void FullyShardedDataParallel::scale_gradients(const events::ScaleGradients& event, const Pass& pass) {
  OnStream on(pass.w, optimizer_stream());
  for (const Tensor& grad : gradients(true))
    if (grad.numel() > 0) pass.w.multiply(grad.slice, event.by[context_.rank]);
}

// Of a scalar, as admission sees to it.
void FullyShardedDataParallel::all_reduce(const events::AllReduce& event, const Pass& pass) {
  const ProcessGroup over = group_named(scenario(), context_.timeline->contract.groups, context_.timeline->group_names[event.over], context_.rank);
  if (over.size() > 1) all_reduce_scalar(shared_.tensors, pass.w, over);
}

}  // namespace gradledger::torch::flat_sharded
