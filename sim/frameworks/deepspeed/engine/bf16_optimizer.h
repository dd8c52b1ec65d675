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
  void initialise(ProgramWriter& w) override;
  void load(const Engine& saved) override;
  void fold(StateFold& f) const override;

 protected:
  void backward_prologue(ProgramWriter& w) override;
  void gradient_ready(ProgramWriter& w, std::uint32_t parameter) override;
  void backward_epilogue(ProgramWriter& w) override;
  void reduce_gradients(ProgramWriter& w) override;
  void model_step(ProgramWriter& w) override;
  void on_value(std::uint32_t stage, double value, ProgramWriter& w) override;
  void optimizer_zero_grad(ProgramWriter& w) override;
  void set_whole_gradient(const events::SetGradient& event, ProgramWriter& w) override;
  void observe_wrapper(ProgramWriter& w) override;

  bool accumulates_in_epilogue() const override { return true; }
  bool hooks_count() const override { return false; }
  bool multiplies_loss() const override { return false; }
  bool sets_param_grad() const override { return behaviour().bf16_set_gradient == Bf16SetGradient::param_grad; }

 private:
  enum Stage : std::uint32_t { norm_known };

  void accumulate(ProgramWriter& w, std::uint32_t parameter);
  void reduce_last_micro_batch(ProgramWriter& w);
  void require_gradients() const;
  void emit_norm(ProgramWriter& w);
  void emit_norm_of(ProgramWriter& w, bool experts, Slice squared);
  void finish_step(ProgramWriter& w, std::optional<double> clip);
  bool apply(ProgramWriter& w, std::size_t group, Tensor& cast);
  Slice high_precision(std::uint32_t parameter) const;
  Slice own_partition(std::size_t group) const;
  bool has_experts() const { return std::any_of(weights_.begin(), weights_.end(), [](const FlatWeights& group) { return group.of_experts(); }); }
  void clear_high_precision(ProgramWriter& w);

  const bool immediate_;
  FlatGroups weights_;
  std::vector<Slice> gradients_;     // fp32_groups_gradients_flat[g]: the whole padded group, on every rank of its
  std::vector<bool> has_gradients_;  // by parameter, in this window
  Slice norm_squared_, norm_, expert_norm_;
  // What the buffer holds: this rank's sum, the average of all ranks, or an average with local gradients on top.
};

}  // namespace gradledger
