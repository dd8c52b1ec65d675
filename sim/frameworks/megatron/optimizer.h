// Megatron's optimizers: FP32Optimizer, Float16OptimizerWithFloat16Params and DistributedOptimizer, of the dense parameters or of the experts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/engine/base_optimizer.h"
#include "sim/engine/tensors.h"
#include "sim/frameworks/megatron/distributed_data_parallel.h"
#include "sim/frameworks/megatron/grad_scaler.h"
#include "sim/frameworks/megatron/norms.h"

namespace gradledger::megatron {

// What the optimizer has of a parameter: all of it, or what lies in the rank's part of a bucket.
struct OptimizerPiece {
  std::uint32_t parameter = 0;
  std::uint64_t parameter_offset = 0;
  Slice main_grad;  // in the buffer
  Slice weights;    // in the model's dtype
  Slice main;       // fp32: the weights themselves, or the optimizer's copy
  Tensor copy;      // fp32 of main_grad, where the buffer is no fp32
  bool has_grad = false;
  BaseOptimizer update;

  Slice grad() const { return copy.defined() ? copy.slice : main_grad; }
  std::uint64_t numel() const { return main.numel; }
};

class ChildOptimizer {
 public:
  ChildOptimizer(SharedSetup setup, bool of_experts);

  // Of the DDP's buffers. `number` among the chained.
  void initialise(const DistributedDataParallel& ddp, std::uint32_t number, ProgramWriter& w);  // distrib_optimizer.py: _build_model_and_main_param_groups, at 0.16.1

  void zero_grad(DistributedDataParallel& ddp, bool set_to_none, ProgramWriter& w);     // optimizer.py: zero_grad, at 0.16.1
  void copy_model_grads_to_main_grads(DistributedDataParallel& ddp, ProgramWriter& w);  // optimizer.py: _copy_model_grads_to_main_grads, at 0.16.1
  void unscale(ProgramWriter& w);                                                       // optimizer.py: _unscale_main_grads_and_check_for_nan, at 0.16.1
  // The sum of squares of several optimizers' gradients, in fp32, over a group.
  static void norm_squared(const std::vector<const ChildOptimizer*>& of, ProgramWriter& w);  // clip_grads.py: get_grad_norm_fp32, at 0.16.1
  void clip(float coefficient, ProgramWriter& w);                                            // clip_grads.py: clip_grad_by_total_norm_fp32, at 0.16.1
  void step_with_ready_grads(ProgramWriter& w);                                              // optimizer.py: step_with_ready_grads, at 0.16.1
  void observe(ProgramWriter& w) const;                                                      // ours: snapshots
  void agree_on_norm_groups(ProgramWriter& w);                                               // optimizer.py: has_grad_norm_group, at 0.19.0

  void count_zeros(ProgramWriter& w);  // clip_grads.py: count_zeros_fp32, at 0.16.1

  void load(const ChildOptimizer& saved);  // optimizer.py: load_state_dict, at 0.16.1

  // In norms and in zeros.
  bool is_counted(const OptimizerPiece& piece) const;
  bool of_experts() const { return of_experts_; }
  GradScaler& scaler() { return scaler_; }
  const GradScaler& scaler() const { return scaler_; }
  const ProcessGroup& stats_group() const;
  Slice found_inf() const { return found_inf_; }
  Slice total_norm() const { return total_norm_; }
  const std::vector<OptimizerPiece>& pieces() const { return pieces_; }
  bool in_fp32() const { return in_fp32_; }
  // Whether what a step does to its gradients is done to the buffer.
  bool shares_memory() const { return pieces_.empty() || !pieces_.front().copy.defined(); }
  // As Megatron calls the gradient of a piece.
  std::string grad_name(std::size_t piece) const;

 private:
  bool distributed() const { return setup_->config->ddp.use_distributed_optimizer; }
  // What torch's optimizer is given is the weight itself, whose param.grad becomes main_grad: of FP32Optimizer, and of fp32 weights among others.
  bool steps_on_weights(const OptimizerPiece& piece) const { return !distributed() && piece.main == piece.weights; }
  void add_piece(const DistributedDataParallel& ddp, std::uint32_t parameter, std::uint64_t offset, std::uint64_t numel,
                 ProgramWriter& w);  // distrib_optimizer.py: _build_model_and_main_param_groups, at 0.16.1

  SharedSetup setup_;
  bool of_experts_;
  bool in_fp32_;  // FP32Optimizer
  std::uint32_t number_ = 0;
  GradScaler scaler_;
  TensorTable tensors_;
  std::vector<OptimizerPiece> pieces_;
  NormScratch scratch_;
  Slice found_inf_, norms_, total_norm_, has_norm_group_, num_zeros_;
};

}  // namespace gradledger::megatron
