// What each wrapper finds in a checkpoint beside weights and moments: the loss scale with its counters, and how many steps there were. Gradients
// are in none, and the engine does not save its count of micro-steps.
#include <string>

#include "sim/frameworks/deepspeed/engine/bf16_optimizer.h"
#include "sim/frameworks/deepspeed/engine/data_parallel.h"
#include "sim/frameworks/deepspeed/engine/zero_stage3.h"
#include "sim/frameworks/deepspeed/engine/zero_stage_1_and_2.h"

namespace gradledger {
namespace {

void load_each(std::vector<BaseOptimizer>& optimizers, const std::vector<BaseOptimizer>& saved) {
  for (std::size_t g = 0; g < optimizers.size(); ++g) optimizers[g].load(saved[g]);
}

}  // namespace

// DeepSpeed#7515 let wrappers of fp16 serve bf16, and loading looked for ZeRO's files, which they do not write; since DeepSpeed#7586 it took the weights
// alone, and since DeepSpeed#7786 all.
void DataParallel::load(const Engine& saved) {
  const auto& before = static_cast<const DataParallel&>(saved);
  const bool looks_for_zero = config().zero.stage > 0 || behaviour().bf16_st0_checkpoint == Bf16Stage0Checkpoint::refused;
  if (!restores_state() && looks_for_zero)
    throw FrameworkError{"AttributeError", std::string(fused_ ? "'FP16_Optimizer'" : "'FP16_UnfusedOptimizer'") + " object has no attribute 'dp_process_group'"};
  if (!restores_state()) return;
  scaler_ = before.scaler_;
  load_each(optimizers_, before.optimizers_);
}

bool DataParallel::restores(BufferPurpose purpose) const { return purpose == BufferPurpose::weights || restores_state(); }

void Bf16Optimizer::load(const Engine& saved) { weights_.load(static_cast<const Bf16Optimizer&>(saved).weights_); }

void ZeroStage1And2::load(const Engine& saved) {
  const auto& before = static_cast<const ZeroStage1And2&>(saved);
  scaler_ = before.scaler_;
  weights_.load(before.weights_);
}

void ZeroStage3::load(const Engine& saved) {
  const auto& before = static_cast<const ZeroStage3&>(saved);
  scaler_ = before.scaler_;
  load_each(optimizers_, before.optimizers_);
}

}  // namespace gradledger
