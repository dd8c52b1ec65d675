#include "sim/frameworks/deepspeed/engine/data_parallel.h"

#include <algorithm>
#include <string>

#include "sim/frameworks/deepspeed/behaviour.h"
#include "sim/engine/clipping.h"
#include "sim/frameworks/deepspeed/settings.h"

namespace gradledger {
namespace {

LossScaler scaler_for(const Scenario& scenario, const Behaviour& behaviour) {
  const DeepSpeedConfig& config = deepspeed_config(scenario);
  if (config.fp16.enabled) return LossScaler(config.fp16, false, ScaleGrowth::one_step_later);
  // FP16_UnfusedOptimizer serves both, and for a while did not ask which it is.
  const bool inherits = config.bf16.enabled && !scenario.engine.optimizer.fused() && behaviour.bf16_st0_zero_grad == Bf16Stage0ZeroGrad::skipped;
  return inherits ? LossScaler(config.fp16, false, ScaleGrowth::one_step_later) : LossScaler::fixed(1.0);
}

}  // namespace

DataParallel::DataParallel(const DeepSpeedContext& context)
    : ScaledOptimizer(context, scaler_for(*context.scenario, context.behaviour)),
      wrapped_(scenario().model_dtype != Dtype::float32),
      fused_(wrapped_ && scenario().engine.optimizer.fused()),
      groups_(rank_groups()),
      group_of_(parameter_count()),
      steps_(parameter_count()) {
  for (const RankGroup& group : groups_) optimizers_.emplace_back(group.optimizer, false);
}

void DataParallel::initialise(ProgramWriter& w) {
  const auto buffer = [&](std::string name, Dtype dtype, std::uint64_t count) {
    const BufferId b = w.declare(std::move(name), dtype, count);
    w.allocate(b);
    return w.whole(b);
  };
  offsets_.resize(parameter_count());
  weights_.resize(parameter_count());
  master_.resize(parameter_count());
  for (std::uint32_t g = 0; g < groups_.size(); ++g) {
    const std::string suffix = "[" + std::to_string(g) + "]";
    std::uint64_t total = 0;
    for (std::uint32_t p : groups_[g].parameters) {
      group_of_[p] = g;
      offsets_[p] = total;
      total += numel(p);
      weights_[p] = buffer(parameter_name(p), scenario().model_dtype, numel(p));
      initialise_weights(w, weights_[p], p, 0);
      if (!wrapped_) continue;
      master_[p] = buffer("fp32_groups" + suffix + "[" + parameter_name(p) + "]", Dtype::float32, numel(p));
      w.copy(master_[p], weights_[p]);
    }
    optimizers_[g].initialise(w, total, suffix);
  }
  if (!wrapped_) master_ = weights_;
  else if (behaviour().master_first_step == MasterFirstStep::taken) step_with_zeros(w);
  norm_squared_ = buffer("norm_squared", Dtype::float64, 1);
  norm_ = buffer("norm", Dtype::float32, 1);
  norm_share_ = buffer("norm / world", Dtype::float32, 1);
  if (!wrapped_) parameter_norms_ = buffer("norms", Dtype::float32, parameter_count());
  overflow_flag_ = buffer("overflow", Dtype::uint8, 1);
}

// live-34: so that the moments are there. Adam corrects the first real step as a second one, and the masters decay once more.
void DataParallel::step_with_zeros(ProgramWriter& w) {
  for (BaseOptimizer& optimizer : optimizers_) optimizer.begin_step();
  for (std::uint32_t p : learned()) {
    const BaseOptimizer& optimizer = optimizers_[group_of_[p]];
    if (!optimizer.heeds_zeros()) continue;
    Tensor zeros = tensors_.allocate(w, "fp32_groups[" + std::to_string(group_of_[p]) + "][" + parameter_name(p) + "].grad", Dtype::float32, numel(p));
    w.fill(zeros.slice, 0.0);
    optimizer.update(w, master_[p], zeros.slice, offsets_[p]);
    tensors_.drop(w, zeros);
  }
}

// ---- backward ---------------------------------------------------------------------------------------------------------------------

// live-1: since DeepSpeed#7665 the scale no longer reaches the loss, while the step still divides by it.
double DataParallel::loss_scale() const { return behaviour().fp16_st0_scale == Fp16Stage0Scale::applied ? scaler_.scale() : 1.0; }

// At a boundary: missing gradients become zeros, so that ranks stay aligned; then the buffered all-reduce, in place.
void DataParallel::reduce_gradients(ProgramWriter& w) {
  std::vector<Slice> gradients, of_experts;
  for (std::uint32_t p : learned()) {
    if (!grad_[p].defined()) {
      make_gradient(w, p);
      w.fill(grad_[p].slice, 0.0);
    }
    if (numel(p) > 0) (scenario().parameters[p].expert ? of_experts : gradients).push_back(grad_[p].slice);
  }
  buffered_all_reduce(w, gradients, of_experts);
}

// ---- step -------------------------------------------------------------------------------------------------------------------------

void DataParallel::model_step(ProgramWriter& w) {
  if (!wrapped_) {
    report_decision(w, false, 1.0);
    if (gradient_clipping_of(scenario()) <= 0) return step_plain(w, std::nullopt);
    emit_norm_of_norms(w);
    // The norms are equal on every rank but for experts; upstream averages them all the same.
    w.copy(norm_share_, norm_);
    w.multiply(norm_share_, 1.0 / peers().size());
    w.collective({.purpose = Purpose::norm, .group = peers().id, .input = norm_share_, .output = norm_share_});
    require_gradient_to_clip();
    w.report(StepFact::gradient_norm, norm_share_, 1.0);
    if (linear()) return step_plain(w, std::nullopt);
    return read(w, norm_known, norm_share_);
  }
  require_timers();
  if (!decides_on_overflow()) return on_value(overflow_known, 0.0, w);
  w.fill(overflow_flag_, 0);
  for (const Tensor& grad : grad_)
    if (grad.defined()) w.check_finite(overflow_flag_, grad.slice);
  // CheckOverflow.has_overflow: an expert overflows on the ranks that have it.
  const bool has_expert = std::any_of(learned().begin(), learned().end(), [&](std::uint32_t p) { return scenario().parameters[p].expert.has_value(); });
  if (const ProcessGroup sharing = expert_parallel_group(scenario(), rank()); has_expert && sharing.size() > 1)
    w.collective({.op = ReduceOp::max, .purpose = Purpose::overflow, .group = sharing.id, .input = overflow_flag_, .output = overflow_flag_});
  share_overflow(w, overflow_flag_);
  read(w, overflow_known, overflow_flag_);
}

// DeepSpeed#7645: before it the return stood outside the branch of the overflow, and no step in fp16 did anything. In bf16 FP16_Optimizer computed the
// flag, and the step went on.
bool DataParallel::skips_on(bool overflow) const {
  if (fused_ && config().fp16.enabled && behaviour().fused_step_return == FusedStepReturn::always) return true;
  const bool applies_anyway = fused_ && !config().fp16.enabled && behaviour().fused_bf16_overflow == FusedBf16Overflow::applied;
  return overflow && !applies_anyway;
}

void DataParallel::finish_step(ProgramWriter& w, std::optional<double> norm) { return wrapped_ ? step_master(w, norm) : step_plain(w, norm); }

// DeepSpeed#7330: before it only a dynamic loss scale brought timers with it.
void DataParallel::require_timers() const {
  if (fused_ && config().fp16.enabled && config().fp16.loss_scale != 0 && behaviour().fused_timers == FusedTimers::missing)
    throw FrameworkError{"TypeError", "'NoneType' object is not callable"};
}

// utils.py: clip_grad_norm_, at 0.19.8. The norm goes to the device of the first gradient.
void DataParallel::require_gradient_to_clip() const {
  if (std::none_of(grad_.begin(), grad_.end(), [](const Tensor& grad) { return grad.defined(); })) throw FrameworkError{"IndexError", "list index out of range"};
}

// live-15: FP16_UnfusedOptimizer reports the norm of the scaled gradients.
double DataParallel::reported_norm_factor() const { return fused_ || behaviour().unfused_reported_norm == UnfusedReportedNorm::unscaled ? 1.0 / unscaled_by() : 1.0; }

// fp32: the norm of each gradient, and the norm of these, each rounded to fp32.
void DataParallel::emit_norm_of_norms(ProgramWriter& w) {
  w.fill(parameter_norms_, 0.0);
  // In a pipeline the first stage counts alone: the others' parameters are taken for copies of it, as with tensor parallelism.
  const bool counted = stage_of(scenario(), rank()) == 0;
  for (std::uint32_t p = 0; p < parameter_count(); ++p) {
    if (grad_[p].defined() && counted && counts_in_norm(p)) emit_norm_of(w, {grad_[p].slice}, parameter_norms_.part(p, 1), false);
  }
  emit_norm_of(w, {parameter_norms_}, norm_, true);
}

// live-36: FP16_UnfusedOptimizer asks gradients for the mark that their parameters have, so that of what tensor-parallel ranks have cut the first one's
// part alone is in the norm.
bool DataParallel::in_norm(std::uint32_t p) const { return fused_ || behaviour().unfused_cut_norm == UnfusedCutNorm::all_parts ? counts_in_norm(p) : first_of_tensor_ranks(); }

// Experts: FP16_UnfusedOptimizer leaves them out of the norm; FP16_Optimizer took the norm of their master weights in place of that of
// their gradients (live-26).
void DataParallel::emit_norm(ProgramWriter& w) {
  if (!fused_ && in_pipeline()) return emit_norm_of_groups(w);
  if (fused_ && masked_.empty()) take_norm_mask();
  std::vector<Slice> shared, of_experts;
  bool has_expert = false;  // with a gradient or without: zeros stand in its flat group
  for (std::uint32_t p : learned()) {
    const bool of_expert = scenario().parameters[p].expert.has_value();
    has_expert = has_expert || of_expert;
    if (of_expert && behaviour().fused_expert_norm == FusedExpertNorm::masters) of_experts.push_back(master_[p]);
    else if (grad_[p].defined() && (fused_ ? !masked_[p] : in_norm(p))) (of_expert ? of_experts : shared).push_back(grad_[p].slice);
  }
  emit_norm_of(w, shared, norm_, true);
  if (!fused_ || !has_expert) return;
  emit_norm_of(w, of_experts, norm_share_, true);
  if (const ProcessGroup sharing = expert_parallel_group(scenario(), rank()); sharing.size() > 1) {
    w.fill(norm_squared_, 0.0);
    w.squared_norm(norm_squared_, norm_share_);
    w.copy(norm_share_, norm_squared_);
    w.collective({.purpose = Purpose::norm, .group = sharing.id, .input = norm_share_, .output = norm_share_});
    w.square_root(norm_share_);
  }
  join_norms(w, norm_squared_, norm_, norm_share_);
}

// FP16_UnfusedOptimizer asks the stages for the norm of each group that has a gradient. Stages with other groups than their neighbours' take one for another, or
// wait for ever.
void DataParallel::emit_norm_of_groups(ProgramWriter& w) {
  w.fill(norm_, 0.0);
  for (const RankGroup& group : groups_) {
    std::vector<Slice> gradients;
    for (const std::uint32_t p : group.parameters)
      if (grad_[p].defined() && !group.of_experts) gradients.push_back(grad_[p].slice);
    if (gradients.empty()) continue;
    emit_norm_of(w, gradients, norm_share_, true);
    join_norms(w, norm_squared_, norm_, norm_share_);
  }
}

// Of copies on tensor-parallel ranks the first one's are in the norm. Which these are FP16_Optimizer finds out in its first step, of parameters that have a gradient
// there: those that have none are in the norm of every rank from then on.
void DataParallel::take_norm_mask() {
  masked_.assign(parameter_count(), false);
  for (const std::uint32_t p : learned()) masked_[p] = grad_[p].defined() && !in_norm(p);
}

// In fp32, of squares added up in fp64.
void DataParallel::emit_norm_of(ProgramWriter& w, const std::vector<Slice>& slices, Slice norm, bool across_stages) {
  w.fill(norm_squared_, 0.0);
  for (const Slice slice : slices) w.squared_norm(norm_squared_, slice);
  w.copy(norm, norm_squared_);
  if (across_stages) sum_over_stages(w, norm);
  w.square_root(norm);
}

// fp32: clip in place, then the base optimizer on param.grad.
void DataParallel::step_plain(ProgramWriter& w, std::optional<double> norm) {
  const bool at_most_one = behaviour().fp32_clip_coefficient == Fp32ClipCoefficient::at_most_one;
  const auto clip = norm ? fp32_clip_coefficient(*norm, gradient_clipping_of(scenario()), at_most_one) : std::nullopt;
  std::vector<Slice> gradients(parameter_count());
  for (std::uint32_t p : learned()) {
    if (!grad_[p].defined()) continue;
    gradients[p] = grad_[p].slice;
    if (clip) w.multiply(gradients[p], *clip);
  }
  observe_weights(w, true, gradients);
  const std::vector<std::uint32_t> numbers = count_steps();
  for (std::uint32_t p : learned())
    if (grad_[p].defined()) optimizers_[group_of_[p]].update_as_step(numbers[p], w, weights_[p], gradients[p], offsets_[p]);
  step_done(w, true);
}

// The number of the step by parameter, as bias corrections take it. PyTorch's optimizers count by tensor, those with a gradient. FusedAdam updates a
// group in one launch: only its last tensor with a gradient is counted, and all take its number (ops/adam/fused_adam.py: step, at 0.19.8).
std::vector<std::uint32_t> DataParallel::count_steps() {
  std::vector<std::uint32_t> last(optimizers_.size()), numbers(parameter_count());
  const auto counted = [&](std::uint32_t p) { return groups_[group_of_[p]].optimizer.fused() ? last[group_of_[p]] : p; };
  for (std::uint32_t p : learned())
    if (grad_[p].defined()) last[group_of_[p]] = p;
  for (std::uint32_t p : learned())
    if (grad_[p].defined() && counted(p) == p) ++steps_[p];
  for (std::uint32_t p : learned())
    if (grad_[p].defined()) numbers[p] = steps_[counted(p)];
  return numbers;
}

// fp16 and bf16: fp32 copies of the gradients, missing ones zero, unscaled and clipped; base step on the master weights; cast back.
void DataParallel::step_master(ProgramWriter& w, std::optional<double> norm) {
  const double factor = unscale_and_clip_factor(unscaled_by(), norm, gradient_clipping_of(scenario()));
  std::vector<Tensor> masters(parameter_count());
  std::vector<Slice> gradients(parameter_count());
  for (std::uint32_t p : learned()) {
    masters[p] = tensors_.allocate(w, "fp32_groups[" + std::to_string(group_of_[p]) + "][" + parameter_name(p) + "].grad", Dtype::float32, numel(p));
    gradients[p] = masters[p].slice;
    if (grad_[p].defined()) w.copy(gradients[p], grad_[p].slice);
    else w.fill(gradients[p], 0.0);
    if (factor != 1.0) w.multiply(gradients[p], factor);
  }
  observe_weights(w, true, gradients);
  for (BaseOptimizer& optimizer : optimizers_) optimizer.begin_step();
  for (std::uint32_t p : learned()) {
    optimizers_[group_of_[p]].update(w, master_[p], gradients[p], offsets_[p]);
    w.copy(weights_[p], master_[p]);
    tensors_.drop(w, masters[p]);
  }
  step_done(w, true);
}

// ---- snapshots ----------------------------------------------------------------------------------------------------------------------

std::vector<ViewPiece> DataParallel::pieces(const std::vector<std::uint32_t>& parameters, const std::vector<Slice>& slices) {
  std::vector<ViewPiece> out;
  for (std::uint32_t p : parameters)
    if (slices[p].buffer != no_index) out.push_back({slices[p], static_cast<std::int32_t>(p), 0});
  return out;
}

void DataParallel::observe_weights(ProgramWriter& w, bool applied, const std::vector<Slice>& gradients) {
  const Role role = applied ? Role::applied_gradient : Role::master_parameter;
  if (!wrapped_) return w.observe(w.view(applied ? "param.grad" : "param", pieces(learned(), gradients)), role, 1.0, !applied);
  for (std::size_t g = 0; g < groups_.size(); ++g)
    w.observe(w.view("fp32_groups[" + std::to_string(g) + (applied ? "].grad" : "]"), pieces(groups_[g].parameters, gradients)), role, 1.0, !applied);
}

void DataParallel::observe_wrapper(ProgramWriter& w) {
  if (!stepped_) return;
  for (std::uint32_t p : learned()) w.observe(w.view(parameter_name(p), whole_parameter(p, weights_[p])), Role::parameter, 1.0, true);
  observe_weights(w, false, master_);
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    std::vector<ViewPiece> in_moments;
    for (std::uint32_t p : groups_[g].parameters) in_moments.push_back({{no_index, offsets_[p], numel(p)}, static_cast<std::int32_t>(p), 0});
    optimizers_[g].observe(w, in_moments);
  }
}

// DeepSpeed#7515 let wrappers of fp16 serve bf16, and loading looked for ZeRO's files, which they do not write; since DeepSpeed#7586 it took the weights
// alone, and since DeepSpeed#7786 all.
void DataParallel::load(const Engine& saved) {
  const auto& before = static_cast<const DataParallel&>(saved);
  const bool looks_for_zero = config().zero.stage > 0 || behaviour().bf16_st0_checkpoint == Bf16Stage0Checkpoint::refused;
  if (!restores_state() && looks_for_zero)
    throw FrameworkError{"AttributeError", std::string(fused_ ? "'FP16_Optimizer'" : "'FP16_UnfusedOptimizer'") + " object has no attribute 'dp_process_group'"};
  if (!restores_state()) return;
  scaler_ = before.scaler_;
  for (std::size_t g = 0; g < optimizers_.size(); ++g) optimizers_[g].load(before.optimizers_[g]);
  steps_ = before.steps_;
}

bool DataParallel::restores(BufferPurpose purpose) const { return purpose == BufferPurpose::weights || restores_state(); }

void DataParallel::fold(StateFold& f) const {
  DeepSpeedEngine::fold(f);
  scaler_.fold(f);
  f.flags(masked_);
}

}  // namespace gradledger
