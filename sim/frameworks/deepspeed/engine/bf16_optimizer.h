// BF16_Optimizer: bf16 weights, fp32 gradient accumulation in one full, replicated buffer, optimizer state partitioned (ZeRO-1).
#pragma once

#include <algorithm>
#include <vector>

#include "sim/frameworks/deepspeed/engine/flat_groups.h"
#include "sim/frameworks/deepspeed/engine/deepspeed_engine.h"

namespace gradledger {

class Bf16Optimizer final : public DeepSpeedEngine {
 public:
  explicit Bf16Optimizer(const DeepSpeedContext& context);

  std::unique_ptr<Engine> clone() const override { return std::make_unique<Bf16Optimizer>(*this); }
  void initialise(ProgramWriter& w) override;  // bf16_optimizer.py: _setup_for_real_optimizer, at 0.19.7
  void load(const Engine& saved) override;
  void fold(StateFold& f) const override;

 protected:
  void backward_prologue(ProgramWriter& w) override;                                     // bf16_optimizer.py: backward_prologue, clear_lp_grads, at 0.19.7
  void gradient_ready(ProgramWriter& w, std::uint32_t parameter) override;               // bf16_optimizer.py: accumulate_hp_grads_and_remove_lp, at 0.19.7
  void backward_epilogue(ProgramWriter& w) override;                                     // bf16_optimizer.py: backward_epilogue, update_hp_grads, at 0.19.7
  void reduce_gradients(ProgramWriter& w) override;                                      // engine.py: buffered_allreduce_fallback, at 0.19.7
  void model_step(ProgramWriter& w) override;                                            // bf16_optimizer.py: step, at 0.19.7
  void on_value(std::uint32_t stage, double value, ProgramWriter& w) override;           // bf16_optimizer.py: step, at 0.19.7
  void optimizer_zero_grad(ProgramWriter& w) override;                                   // bf16_optimizer.py: zero_grad, at 0.19.7
  bool zero_grad_after_step() const override;                                            // engine.py: _take_model_step, at 0.16.0
  void set_whole_gradient(const events::SetGradient& event, ProgramWriter& w) override;  // tensor_fragment.py: get_full_hp_grad, set_full_hp_grad, at 0.19.7
  void observe_wrapper(ProgramWriter& w) override;                                       // ours: snapshots

  bool accumulates_in_epilogue() const override { return true; }
  bool hooks_count() const override { return false; }
  bool multiplies_loss() const override { return false; }
  bool sets_param_grad() const override { return !sets_accumulator() && !reads_fragments(); }

 private:
  enum Stage : std::uint32_t { norm_known };

  bool sets_accumulator() const { return behaviour().bf16_set_gradient == Bf16SetGradient::accumulator; }
  bool reads_fragments() const { return behaviour().bf16_get_gradient == Bf16GetGradient::owned_fragment; }
  std::uint32_t found_by_owner(const OwnedPart& part) const;  // utils.py: _init_lp_to_hp_mapping, at 0.19.7
  // `repeated` is the caller's. Both may raise.
  void accumulate(ProgramWriter& w, std::uint32_t parameter);  // bf16_optimizer.py: _update_hp_grad, at 0.19.7
  void reduce_last_micro_batch(ProgramWriter& w);              // engine.py: buffered_allreduce_fallback, before DeepSpeed#5170
  void require_gradients() const;
  bool in_norm(std::uint32_t parameter, bool experts) const;
  bool any_in_norm(bool experts) const;
  void emit_norm(ProgramWriter& w);                                  // utils.py: get_norm_with_moe_layers, at 0.19.7
  void emit_norm_of(ProgramWriter& w, bool experts, Slice squared);  // utils.py: get_global_norm_of_tensors, at 0.19.7
  void finish_step(ProgramWriter& w, std::optional<double> clip);    // bf16_optimizer.py: step, update_lp_params, at 0.19.7
  bool apply(ProgramWriter& w, std::size_t group, Tensor& cast);     // bf16_optimizer.py: step, at 0.19.7
  Slice high_precision(std::uint32_t parameter) const;
  Slice own_partition(std::size_t group) const;
  bool has_experts() const {
    return std::any_of(weights_.begin(), weights_.end(), [](const FlatWeights& group) { return group.of_experts(); });
  }
  void clear_high_precision(ProgramWriter& w);  // bf16_optimizer.py: clear_hp_grads, at 0.19.7

  const bool immediate_;
  FlatGroups weights_;
  std::vector<Slice> gradients_;     // fp32_groups_gradients_flat[g]: the whole padded group, on every rank of its
  std::vector<bool> has_gradients_;  // by parameter, in this window
  Slice norm_squared_, norm_, expert_norm_;
  // What the buffer holds: this rank's sum, the average of all ranks, or an average with local gradients on top.
};

}  // namespace gradledger
