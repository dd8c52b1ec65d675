// What each wrapper finds in a checkpoint beside weights and moments: the loss scale with its counters, and how many steps there were. Gradients
// are in none, and the engine does not save its count of micro-steps.
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

void DataParallel::load(const Engine& saved) {
  const auto& before = static_cast<const DataParallel&>(saved);
  scaler_ = before.scaler_;
  load_each(optimizers_, before.optimizers_);
}

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
