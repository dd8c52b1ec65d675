#include "sim/frameworks/megatron/optimizer.h"

#include <algorithm>
#include <utility>

namespace gradledger::megatron {

ChildOptimizer::ChildOptimizer(SharedSetup setup, bool of_experts)
    : setup_(std::move(setup)),
      of_experts_(of_experts),
      in_fp32_(setup_->scenario().model_dtype == Dtype::float32 && !setup_->config->ddp.use_distributed_optimizer),
      scaler_(setup_->config->optimizer, setup_->scenario().model_dtype) {}

// What norms are summed over, and whether there was an overflow: with the distributed optimizer everybody of the instance, else the ranks that
// together hold a model.
const ProcessGroup& ChildOptimizer::stats_group() const {
  if (distributed()) return setup_->groups.of_instance;
  return of_experts_ ? setup_->groups.expert_model : setup_->groups.model;
}

// With the distributed optimizer in the order of the buffers, else in the model's.
void ChildOptimizer::initialise(const DistributedDataParallel& ddp, std::uint32_t number, ProgramWriter& w) {
  number_ = number;
  for (const ParamAndGradBuffer& buffer : ddp.buffers()) {
    if (buffer.of_experts != of_experts_ || !distributed()) continue;
    for (const ShardPiece& piece : shard_of(buffer.layout, buffer.group.size(), buffer.group.index_of(setup_->context.rank)))
      add_piece(ddp, piece.parameter, piece.parameter_offset, piece.numel, w);
  }
  for (std::uint32_t p = 0; p < setup_->parameter_count() && !distributed(); ++p)
    if (ddp.main_grad(p).buffer != no_index && setup_->parameter(p).expert.has_value() == of_experts_) add_piece(ddp, p, 0, setup_->parameter(p).numel, w);
  const auto scalar = [&](const char* name, Dtype dtype) {
    const BufferId b = w.declare(name, dtype, 1);
    w.allocate(b);
    return w.whole(b);
  };
  if (scaler_.enabled()) found_inf_ = scalar("found_inf", Dtype::uint8);
  scratch_.allocate(setup_->machine == Machine::recorded_cpu, w);
  const BufferId norms = w.declare("grad_norms", Dtype::float32, std::max<std::size_t>(pieces_.size(), 1));
  w.allocate(norms);
  norms_ = w.whole(norms);
  total_norm_ = scalar("total_norm", Dtype::float32);
  has_norm_group_ = scalar("has_grad_norm_group", Dtype::uint8);
  num_zeros_ = scalar("num_zeros", setup_->behaviour.zeros_in_int64 ? Dtype::float64 : Dtype::float32);
}

void ChildOptimizer::add_piece(const DistributedDataParallel& ddp, std::uint32_t p, std::uint64_t offset, std::uint64_t numel, ProgramWriter& w) {
  OptimizerPiece piece{
      p, offset, ddp.main_grad(p).part(offset, numel), ddp.weights(p).part(offset, numel), {}, {}, false, BaseOptimizer(setup_->scenario().engine.optimizer_of(p), false)};
  piece.main = piece.weights;
  if (setup_->scenario().dtype_of(p) != Dtype::float32) {
    const BufferId b = w.declare("main_param[" + setup_->parameter(p).name + "]", Dtype::float32, numel);
    w.allocate(b);
    piece.main = w.whole(b);
    w.copy(piece.main, piece.weights);
  }
  piece.update.initialise(w, numel, "[" + setup_->parameter(p).name + "]");
  pieces_.push_back(std::move(piece));
}

std::string ChildOptimizer::grad_name(std::size_t piece) const { return "opt" + std::to_string(number_) + ".group0.param" + std::to_string(piece) + ".grad"; }

// Gradients that are kept are zeroed where they lie, and of fp32 that is the buffer.
void ChildOptimizer::zero_grad(DistributedDataParallel& ddp, bool set_to_none, ProgramWriter& w) {
  for (OptimizerPiece& piece : pieces_) {
    if (!set_to_none) {
      if (piece.has_grad) w.fill(piece.grad(), 0.0);
      continue;
    }
    tensors_.clear(w, piece.copy);
    piece.has_grad = false;
    if (steps_on_weights(piece)) ddp.set_grad_is_main_grad(piece.parameter, false);
  }
}

// float() of what is fp32 already is the same memory: what the step does to it, it does to the buffer.
void ChildOptimizer::copy_model_grads_to_main_grads(DistributedDataParallel& ddp, ProgramWriter& w) {
  for (OptimizerPiece& piece : pieces_) {
    piece.has_grad = true;
    if (steps_on_weights(piece)) ddp.set_grad_is_main_grad(piece.parameter, true);
    if (w.declaration(piece.main_grad.buffer).dtype == Dtype::float32) continue;
    if (!piece.copy.defined()) piece.copy = tensors_.allocate(w, "main_param[" + setup_->parameter(piece.parameter).name + "].grad", Dtype::float32, piece.numel());
    w.copy(piece.copy.slice, piece.main_grad);
  }
}

// Infinities are looked for in what was there before.
void ChildOptimizer::unscale(ProgramWriter& w) {
  w.fill(found_inf_, 0);
  for (const OptimizerPiece& piece : pieces_) {
    w.check_finite(found_inf_, piece.grad());
    w.multiply(piece.grad(), scaler_.unscale_factor());
  }
  meet_in(stats_group(), {.kind = CollectiveKind::all_reduce, .op = ReduceOp::max, .purpose = Purpose::overflow, .input = found_inf_, .output = found_inf_}, w);
}

// The norm of each gradient, rounded, and of these the norm, rounded, whose square is summed over ranks. Copies, and what every tensor-parallel rank
// has alike, count once.
void ChildOptimizer::norm_squared(const std::vector<const ChildOptimizer*>& of, ProgramWriter& w) {
  const ChildOptimizer& first = *of.front();
  std::vector<Slice> norms;
  for (const ChildOptimizer* child : of)
    for (std::size_t i = 0; i < child->pieces_.size(); ++i) {
      if (!child->is_counted(child->pieces_[i])) continue;
      norms.push_back(child->norms_.part(static_cast<std::uint32_t>(i), 1));
      emit_norm(first.scratch_, {child->pieces_[i].grad()}, norms.back(), w);
    }
  emit_norm(first.scratch_, norms, first.total_norm_, w);
  w.fill(first.scratch_.squared, 0.0);
  w.squared_norm(first.scratch_.squared, first.total_norm_);
  w.copy(first.total_norm_, first.scratch_.squared);
  meet_in(first.stats_group(), {.kind = CollectiveKind::all_reduce, .op = ReduceOp::sum, .purpose = Purpose::norm, .input = first.total_norm_, .output = first.total_norm_}, w);
}

bool ChildOptimizer::is_counted(const OptimizerPiece& piece) const {
  const Attributes attributes = setup_->attributes(piece.parameter);
  const bool duplicate = !attributes.tensor_model_parallel && setup_->groups.tensor.index_of(setup_->context.rank) != 0;
  const bool copy = attributes.shared && setup_->groups.pipeline.size() > 1 && setup_->groups.last_stage();
  return piece.has_grad && !copy && !duplicate;
}

void ChildOptimizer::agree_on_norm_groups(ProgramWriter& w) {
  w.fill(has_norm_group_, 0);
  meet_in(stats_group(), {.kind = CollectiveKind::all_reduce, .op = ReduceOp::max, .purpose = Purpose::control, .input = has_norm_group_, .output = has_norm_group_}, w);
}

// A statistic, which no gradient follows from: the sum is emitted, and not what each rank counted.
void ChildOptimizer::count_zeros(ProgramWriter& w) {
  w.fill(num_zeros_, 0.0);
  meet_in(stats_group(), {.kind = CollectiveKind::all_reduce, .purpose = Purpose::control, .input = num_zeros_, .output = num_zeros_}, w);
}

void ChildOptimizer::load(const ChildOptimizer& saved) {
  scaler_ = saved.scaler_;
  for (std::size_t i = 0; i < pieces_.size(); ++i) pieces_[i].update.load(saved.pieces_[i].update);
}

void ChildOptimizer::clip(float coefficient, ProgramWriter& w) {
  for (const OptimizerPiece& piece : pieces_) w.multiply(piece.grad(), coefficient);
}

void ChildOptimizer::step_with_ready_grads(ProgramWriter& w) {
  std::vector<ViewPiece> applied;
  for (const OptimizerPiece& piece : pieces_)
    if (piece.has_grad) applied.push_back({piece.grad(), static_cast<std::int32_t>(piece.parameter), piece.parameter_offset});
  if (!applied.empty()) w.observe(w.view(of_experts_ ? "main_param.grad of experts" : "main_param.grad", std::move(applied)), Role::applied_gradient, 1.0, false);
  for (OptimizerPiece& piece : pieces_) {
    if (!piece.has_grad) continue;
    piece.update.begin_step();
    piece.update.update(w, piece.main, piece.grad(), 0);
    if (piece.main != piece.weights) w.copy(piece.weights, piece.main);
  }
}

void ChildOptimizer::observe(ProgramWriter& w) const {
  for (const OptimizerPiece& piece : pieces_) {
    const std::string& name = setup_->parameter(piece.parameter).name;
    const ViewPiece own{piece.main, static_cast<std::int32_t>(piece.parameter), piece.parameter_offset};
    if (piece.main != piece.weights) w.observe(w.view("main_param[" + name + "]", {own}), Role::master_parameter, 1.0, true);
    piece.update.observe(w, {{{no_index, 0, piece.numel()}, own.parameter, own.parameter_offset}});
  }
}

}  // namespace gradledger::megatron
