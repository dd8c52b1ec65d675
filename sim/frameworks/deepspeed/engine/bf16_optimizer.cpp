#include "sim/frameworks/deepspeed/engine/bf16_optimizer.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "sim/engine/clipping.h"
#include "sim/frameworks/deepspeed/settings.h"

namespace gradledger {
namespace {

std::string number(std::size_t group) { return "[" + std::to_string(group) + "]"; }

}  // namespace

Bf16Optimizer::Bf16Optimizer(const DeepSpeedContext& context)
    : DeepSpeedEngine(context),
      immediate_(config().bf16.immediate_grad_update ? *config().bf16.immediate_grad_update : behaviour().bf16_immediate_default == Bf16ImmediateDefault::on),
      weights_(scenario(), rank(), rank_groups(), "fp32_groups_flat_partition", Dealing::in_order),  // round_robin_gradients is ZeRO's alone
      has_gradients_(parameter_count()) {}

void Bf16Optimizer::initialise(ProgramWriter& w) {
  weights_.initialise(w);
  const auto buffer = [&](std::string name, Dtype dtype, std::uint64_t numel) {
    const BufferId b = w.declare(std::move(name), dtype, numel);
    w.allocate(b);
    return w.whole(b);
  };
  for (std::size_t g = 0; g < weights_.size(); ++g) {
    gradients_.push_back(buffer("fp32_groups_gradients_flat" + number(g), grad_accum_dtype_of(scenario()), weights_[g].layout().padded()));
    w.fill(gradients_.back(), 0.0);
  }
  if (has_experts()) expert_norm_ = buffer("norm of the experts", Dtype::float32, 1);
  norm_squared_ = buffer("norm_squared", Dtype::float64, 1);
  norm_ = buffer("norm", Dtype::float32, 1);
}

Slice Bf16Optimizer::high_precision(std::uint32_t p) const {
  const FlatPartition& layout = weights_.of(p).layout();
  return gradients_[weights_.number_of(p)].part(layout.offset(p), numel(p));
}

Slice Bf16Optimizer::own_partition(std::size_t group) const {
  const std::uint64_t partition = weights_[group].layout().partition();
  return gradients_[group].part(weights_[group].index_in_peers() * partition, partition);
}

// ---- backward ---------------------------------------------------------------------------------------------------------------------

// Low-precision gradients of the micro-batch before are zeroed in place; before DeepSpeed#7018 they were let go.
void Bf16Optimizer::backward_prologue(ProgramWriter& w) {
  if (behaviour().bf16_prologue == Bf16Prologue::drops) return DeepSpeedEngine::optimizer_zero_grad(w);
  for (const Tensor& grad : grad_)
    if (grad.defined()) w.fill(grad.slice, 0.0);
}

void Bf16Optimizer::gradient_ready(ProgramWriter& w, std::uint32_t p) {
  if (!immediate_) return;
  accumulate(w, p);
  if (behaviour().bf16_hook_leaves == Bf16HookLeaves::zeros) w.fill(grad_[p].slice, 0.0);
  if (behaviour().bf16_hook_leaves == Bf16HookLeaves::nothing) tensors_.clear(w, grad_[p]);
}

void Bf16Optimizer::accumulate(ProgramWriter& w, std::uint32_t p) {
  w.accumulate(high_precision(p), grad_[p].slice);
  has_gradients_[p] = true;
}

void Bf16Optimizer::backward_epilogue(ProgramWriter& w) {
  if (immediate_) return;
  for (std::uint32_t p : learned())
    if (grad_[p].defined()) accumulate(w, p);
}

// At a boundary. The accumulator is cast to the communication dtype, bf16 unless configured, summed and averaged there, and cast back:
// every rank then holds the whole average. The engine decides whether the last micro-batch is in it by then (DeepSpeed#7985).
void Bf16Optimizer::reduce_gradients(ProgramWriter& w) {
  if (behaviour().bf16_reduced_buffer == Bf16ReducedBuffer::param_grad) return reduce_last_micro_batch(w);
  std::vector<Slice> shared, of_experts;
  for (std::size_t g = 0; g < weights_.size(); ++g) (weights_[g].of_experts() ? of_experts : shared).push_back(gradients_[g]);
  buffered_all_reduce(w, shared, of_experts);
}

// Before DeepSpeed#5170: PARAM.grad, the last micro-batch alone, is averaged, and the step goes on with the rank's own accumulator.
void Bf16Optimizer::reduce_last_micro_batch(ProgramWriter& w) {
  std::vector<Slice> shared, of_experts;
  for (std::uint32_t p = 0; p < parameter_count(); ++p)
    if (grad_[p].defined() && numel(p) > 0) (scenario().parameters[p].expert ? of_experts : shared).push_back(grad_[p].slice);
  buffered_all_reduce(w, shared, of_experts);
}

// ---- step -------------------------------------------------------------------------------------------------------------------------

void Bf16Optimizer::model_step(ProgramWriter& w) {
  require_gradients();
  if (!decides_on_overflow() || behaviour().bf16_norm == Bf16Norm::above_zero) report_decision(w, false, 1.0);
  emit_norm(w);
  w.report(StepFact::gradient_norm, norm_, 1.0);
  if (!decides_on_overflow()) return finish_step(w, std::nullopt);
  read(w, norm_known, norm_);
}

// Of this rank's whole buffers and of the other stages': the ranks of a stage are assumed equal and no collective checks it. That of experts is summed over the ranks that share
// them out, and the norm of both norms taken. A rank without a gradient of an expert does not ask for that norm, whether others do or not.
void Bf16Optimizer::emit_norm(ProgramWriter& w) {
  emit_norm_of(w, false, norm_);
  w.square_root(norm_);
  if (!has_experts()) return;
  if (!any_in_norm(true)) {
    w.fill(expert_norm_, 0.0);
    return join_norms(w, norm_squared_, norm_, expert_norm_);
  }
  emit_norm_of(w, true, expert_norm_);
  if (const ProcessGroup sharing = expert_parallel_group(scenario(), rank()); sharing.size() > 1)
    w.collective({.purpose = Purpose::norm, .group = sharing.id, .input = expert_norm_, .output = expert_norm_});
  w.square_root(expert_norm_);
  join_norms(w, norm_squared_, norm_, expert_norm_);
}

bool Bf16Optimizer::in_norm(std::uint32_t p, bool experts) const {
  const bool has_place = numel(p) > 0 || behaviour().empty_parameter != EmptyParameter::left_out;
  return has_place && has_gradients_[p] && counts_in_norm(p) && weights_.of(p).of_experts() == experts;
}

bool Bf16Optimizer::any_in_norm(bool experts) const {
  for (std::uint32_t p = 0; p < parameter_count(); ++p)
    if (in_norm(p, experts)) return true;
  return false;
}

void Bf16Optimizer::emit_norm_of(ProgramWriter& w, bool experts, Slice squared) {
  w.fill(norm_squared_, 0.0);
  for (std::uint32_t p : learned())
    if (in_norm(p, experts)) w.squared_norm(norm_squared_, high_precision(p));
  w.copy(squared, norm_squared_);
  sum_over_stages(w, squared);
}

// The norm of no gradient at all, or of those of experts alone.
void Bf16Optimizer::require_gradients() const {
  if (any_in_norm(false)) return;
  if (behaviour().bf16_norm == Bf16Norm::finite) throw FrameworkError{"RuntimeError", "stack expects a non-empty TensorList"};
  throw FrameworkError{"IndexError", "list index out of range"};
}

void Bf16Optimizer::on_value(std::uint32_t, double norm, ProgramWriter& w) {
  // An infinite or NaN norm becomes -1 upstream.
  const bool finite = norm >= 0.0 && norm <= std::numeric_limits<float>::max();
  if (behaviour().bf16_norm == Bf16Norm::above_zero && !(finite && (norm > 0.0 || linear())))
    throw FrameworkError{"AssertionError", "BF16_Optimizer requires a gradient norm above zero"};
  if (behaviour().bf16_norm == Bf16Norm::finite) {
    report_decision(w, !finite, 1.0);
    if (!finite) {
      clear_high_precision(w);
      return step_done(w, false);
    }
  }
  const double clip = linear() ? 0.0 : gradient_clipping_of(scenario());
  if (clip > 0) report_clipping_norm(w, norm);
  finish_step(w, clip > 0 ? clip_coefficient(norm, clip) : std::nullopt);
}

void Bf16Optimizer::finish_step(ProgramWriter& w, std::optional<double> clip) {
  if (clip)
    for (std::uint32_t p : learned())
      if (has_gradients_[p]) w.multiply(high_precision(p), *clip);

  std::vector<Tensor> casts(weights_.size());
  bool updated = false;
  for (std::size_t g = 0; g < weights_.size(); ++g) updated = apply(w, g, casts[g]) || updated;
  weights_.all_gather(w);
  for (Tensor& cast : casts) tensors_.drop(w, cast);
  clear_high_precision(w);
  step_done(w, updated);
}

bool Bf16Optimizer::apply(ProgramWriter& w, std::size_t group, Tensor& cast) {
  Slice gradient = own_partition(group);
  const std::string name = weights_[group].master_name() + ".grad";
  if (w.declaration(gradient.buffer).dtype != Dtype::float32) {
    cast = tensors_.allocate(w, name, Dtype::float32, gradient.numel);
    w.copy(cast.slice, gradient);
    gradient = cast.slice;
  }
  // DeepSpeed#6485: until then set at initialisation, and taken away again where it is a cast: the base optimizer finds no gradient and does nothing.
  if (cast.defined() && behaviour().bf16_master_gradient != Bf16MasterGradient::at_step) return false;
  w.observe(w.view(name, weights_[group].partition_pieces(gradient)), Role::applied_gradient, 1.0, false);
  weights_[group].step(w, gradient);
  return true;
}

void Bf16Optimizer::clear_high_precision(ProgramWriter& w) {
  for (const Slice gradient : gradients_) w.fill(gradient, 0.0);
  std::fill(has_gradients_.begin(), has_gradients_.end(), false);
}

// The engine asks for the method before it calls it; a user does not.
bool Bf16Optimizer::zero_grad_after_step() const { return behaviour().bf16_prologue != Bf16Prologue::drops && DeepSpeedEngine::zero_grad_after_step(); }

void Bf16Optimizer::optimizer_zero_grad(ProgramWriter& w) {
  if (behaviour().bf16_prologue == Bf16Prologue::drops) throw FrameworkError{"AttributeError", "'BF16_Optimizer' object has no attribute 'zero_grad'"};
  DeepSpeedEngine::optimizer_zero_grad(w);
  clear_high_precision(w);
}

// ---- snapshots ----------------------------------------------------------------------------------------------------------------------

void Bf16Optimizer::observe_wrapper(ProgramWriter& w) {
  for (std::size_t g = 0; g < weights_.size(); ++g) {
    const FlatPartition& layout = weights_[g].layout();
    std::vector<ViewPiece> pieces;
    for (std::uint32_t p : layout.order()) pieces.push_back({high_precision(p), static_cast<std::int32_t>(p), 0});
    if (layout.numel() < gradients_[g].numel) pieces.push_back({gradients_[g].part(layout.numel(), gradients_[g].numel - layout.numel()), -1, 0});
    w.observe(w.view("fp32_groups_gradients_flat" + number(g), std::move(pieces)), Role::replicated_accumulator, 1.0, true);
    w.observe(w.view("fp32_groups_gradient_flat_partition" + number(g), weights_[g].partition_pieces(own_partition(g))), Role::replicated_accumulator, 1.0, true);
  }
  if (stepped_) weights_.observe(w);
}

// param.grad stays until the next backward zeroes it, so that what is set goes there, where no step looks. Without one an owner looks into its own copy of
// the accumulator. From 0.19.8 on it does so also where there is a param.grad, and finds what it owns.
void Bf16Optimizer::set_whole_gradient(const events::SetGradient& event, ProgramWriter& w) {
  const std::uint32_t p = event.parameter;
  if (sets_accumulator()) return w.multiply(high_precision(p), event.factor);
  const OwnedPart part = weights_.of(p).owned(p);
  const Slice found = part.numel > 0 ? high_precision(found_by_owner(part)) : Slice{};
  Tensor full = times_factor_of_found(event, w, part, found);
  if (reads_fragments() && grad_[p].defined()) w.copy(grad_[p].slice, full.slice);
  else if (part.numel > 0) w.copy(found, set_from(part, found, full.slice));
  tensors_.drop(w, full);
}

// The accumulators are listed for all of a group, and until 0.19.8 asked for by the parameter's place among those of the rank's partition: a rank whose
// partition does not begin with the first finds those of others.
std::uint32_t Bf16Optimizer::found_by_owner(const OwnedPart& part) const {
  if (reads_fragments()) return part.parameter;
  const FlatWeights& group = weights_.of(part.parameter);
  const auto of_parameter = [&](const OwnedPart& other) { return other.parameter == part.parameter; };
  const auto place = std::find_if(group.parts().begin(), group.parts().end(), of_parameter) - group.parts().begin();
  return group.layout().order()[static_cast<std::size_t>(place)];
}

void Bf16Optimizer::load(const Engine& saved) { weights_.load(static_cast<const Bf16Optimizer&>(saved).weights_); }

void Bf16Optimizer::fold(StateFold& f) const {
  DeepSpeedEngine::fold(f);
  f.slices(gradients_);
  f.flags(has_gradients_);
}

}  // namespace gradledger
