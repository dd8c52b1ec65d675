#include "sim/engine/bf16_optimizer.h"

#include <algorithm>
#include <limits>

#include "sim/engine/clipping.h"
#include "sim/engine/fallback_reduction.h"

namespace gradledger {

Bf16Optimizer::Bf16Optimizer(const EngineContext& context)
    : DeepSpeedEngine(context),
      immediate_(config().bf16.immediate_grad_update),
      weights_(scenario(), rank(), "fp32_groups_flat_partition[0]"),
      has_gradients_(parameter_count()) {}

void Bf16Optimizer::initialise(ProgramWriter& w) {
  weights_.initialise(w);
  const auto buffer = [&](const char* name, Dtype dtype, std::uint32_t numel) {
    const BufferId b = w.declare(name, dtype, numel);
    w.allocate(b);
    return w.whole(b);
  };
  gradients_ = buffer("fp32_groups_gradients_flat[0]", scenario().grad_accum_dtype(), weights_.layout().padded());
  w.fill(gradients_, 0.0);
  norm_squared_ = buffer("norm_squared", Dtype::float64, 1);
  norm_ = buffer("norm", Dtype::float32, 1);
}

Slice Bf16Optimizer::high_precision(std::uint32_t p) const { return gradients_.part(weights_.layout().offset(p), numel(p)); }

Slice Bf16Optimizer::own_partition() const {
  return gradients_.part(index_in_peers() * weights_.layout().partition(), weights_.layout().partition());
}

// ---- backward ---------------------------------------------------------------------------------------------------------------------

// Low-precision gradients of the micro-batch before are zeroed in place.
void Bf16Optimizer::backward_prologue(ProgramWriter& w) {
  for (const Tensor& grad : grad_)
    if (grad.defined()) w.fill(grad.slice, 0.0);
  gradients_reduced_ = false;
}

void Bf16Optimizer::gradient_ready(ProgramWriter& w, std::uint32_t p) {
  if (holds_ == Holds::reduced) holds_ = Holds::mixed;
  if (!immediate_) return;
  accumulate(w, p);
  if (behaviour().bf16_hook_leaves == Bf16HookLeaves::zeros) w.fill(grad_[p].slice, 0.0);
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
// every rank then holds the whole average. The engine decides whether the last micro-batch is in it by then (#7985).
void Bf16Optimizer::reduce_gradients(ProgramWriter& w) {
  if (behaviour().bf16_reduced_buffer == Bf16ReducedBuffer::param_grad) return reduce_last_micro_batch(w);
  fallback_all_reduce(w, tensors_, config(), averages(), fallback_divisor(), scenario().communication_dtype(), {gradients_}, peers().id);
  holds_ = Holds::reduced;
}

// Before #5170: PARAM.grad, the last micro-batch alone, is averaged, and the step goes on with the rank's own accumulator.
void Bf16Optimizer::reduce_last_micro_batch(ProgramWriter& w) {
  std::vector<Slice> gradients;
  for (std::uint32_t p = 0; p < parameter_count(); ++p)
    if (grad_[p].defined() && numel(p) > 0) gradients.push_back(grad_[p].slice);
  fallback_all_reduce(w, tensors_, config(), averages(), fallback_divisor(), scenario().communication_dtype(), gradients, peers().id);
  gradients_reduced_ = true;
}

// ---- step -------------------------------------------------------------------------------------------------------------------------

// The norm is of this rank's whole buffer: ranks are assumed equal and no collective checks it.
void Bf16Optimizer::model_step(ProgramWriter& w) {
  report_decision(w, false, 1.0);
  w.fill(norm_squared_, 0.0);
  for (std::uint32_t p : learned())
    if (has_gradients_[p]) w.squared_norm(norm_squared_, high_precision(p));
  w.copy(norm_, norm_squared_);
  w.square_root(norm_);
  w.metric(w.metric_name("global_grad_norm"), norm_, 1.0);
  if (linear()) return finish_step(w, std::nullopt);
  read(w, norm_known, norm_);
}

void Bf16Optimizer::on_value(std::uint32_t, double norm, ProgramWriter& w) {
  // An infinite or NaN norm becomes -1 upstream, so the same assertion stops it.
  if (!(norm > 0.0) || norm > std::numeric_limits<float>::max())
    throw FrameworkError{"AssertionError", "BF16_Optimizer requires a gradient norm above zero"};
  const double clip = scenario().gradient_clipping();
  if (clip > 0) report_clipping_norm(w, norm);
  finish_step(w, clip > 0 ? clip_coefficient(norm, clip) : std::nullopt);
}

void Bf16Optimizer::finish_step(ProgramWriter& w, std::optional<double> clip) {
  if (clip)
    for (std::uint32_t p : learned())
      if (has_gradients_[p]) w.multiply(high_precision(p), *clip);

  Slice gradient = own_partition();
  Tensor cast;
  if (w.declaration(gradient.buffer).dtype != Dtype::float32) {
    cast = tensors_.allocate(w, "fp32_groups_flat_partition[0].grad", Dtype::float32, gradient.numel);
    w.copy(cast.slice, gradient);
    gradient = cast.slice;
  }
  // #6485: until then set at initialisation, and taken away again where it is a cast: the base optimizer finds no gradient and does nothing.
  if (!cast.defined() || behaviour().bf16_master_gradient == Bf16MasterGradient::at_step) {
    w.observe(w.view("fp32_groups_flat_partition[0].grad", weights_.partition_pieces(gradient)), Role::applied_gradient, 1.0, false);
    weights_.step(w, gradient);
  }
  tensors_.drop(w, cast);
  clear_high_precision(w);
  step_done(w, false);
}

void Bf16Optimizer::clear_high_precision(ProgramWriter& w) {
  w.fill(gradients_, 0.0);
  std::fill(has_gradients_.begin(), has_gradients_.end(), false);
  holds_ = Holds::local;
}

void Bf16Optimizer::optimizer_zero_grad(ProgramWriter& w) {
  DeepSpeedEngine::optimizer_zero_grad(w);
  clear_high_precision(w);
}

// ---- snapshots ----------------------------------------------------------------------------------------------------------------------

Role Bf16Optimizer::gradient_role(std::uint32_t) const { return gradients_reduced_ ? Role::reduced_accumulator : Role::scratch; }

void Bf16Optimizer::observe_wrapper(ProgramWriter& w) {
  const Role role = holds_ == Holds::local     ? Role::local_accumulator
                    : holds_ == Holds::reduced ? Role::reduced_accumulator
                                               : Role::scratch;
  std::vector<ViewPiece> pieces;
  for (std::uint32_t p : weights_.layout().order()) pieces.push_back({high_precision(p), static_cast<std::int32_t>(p), 0});
  if (const std::uint32_t end = weights_.layout().numel(); end < gradients_.numel)
    pieces.push_back({gradients_.part(end, gradients_.numel - end), -1, 0});
  w.observe(w.view("fp32_groups_gradients_flat[0]", std::move(pieces)), role, 1.0, true);
  w.observe(w.view("fp32_groups_gradient_flat_partition[0]", weights_.partition_pieces(own_partition())), role, 1.0, true);
  if (stepped_) weights_.observe(w);
}

}  // namespace gradledger
