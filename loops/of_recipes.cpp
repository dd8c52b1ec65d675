#include "loops/of_recipes.h"

#include <array>

#include "loops/windows.h"

namespace gradledger::loops {

std::vector<LoopPackage> torchtitan_packages() {
  static constexpr std::array<std::string_view, 2> changed{"0.2.0", "0.3.0"};
  return {{"torchtitan", "0.3.0", changed}};
}

// torchtitan/train.py, train_step, and components/loss.py, RescaleAccumulatedLoss, at 0.2.0 and 0.2.1: the mean of a micro-batch over gradient_accumulation_steps.
// torchtitan/trainer.py, train_step, and distributed/fsdp.py, disable_fsdp_gradient_division, at 0.3.0 (torchtitan#2206): the sum over global_valid_tokens, of all ranks, and
// fully_shard divides by 1. Gradients are cleared first, and every micro-batch reduces.
Expansion torchtitan(const LoopSetting& s) {
  const bool by_tokens = at_least(s.packages.at("torchtitan"), "0.3");
  Wrapping w;
  w.weight = by_tokens ? "tokens/tokens_of_window" : one_over(s.micro_batches);
  w.clears_before = true;
  Expansion out = expand(s, w, {{"divide_by", "tokens"}}, true);
  if (by_tokens) out.config["gradient_divide_factor"] = 1.0;
  return out;
}

std::vector<LoopPackage> torchtune_packages() {
  static constexpr std::array<std::string_view, 3> changed{"0.3.0", "0.4.0", "0.6.0"};
  return {{"torchtune", "0.6.1", changed}};
}

std::string refused_by_torchtune(const LoopSetting& s) {
  if (!s.optimizer_in_backward) return "";
  if (!at_least(s.packages.at("torchtune"), "0.4")) return "optimizer_in_bwd is of full_finetune_distributed since torchtune 0.4.0";
  if (s.micro_batches == 1) return "";
  return "RuntimeError: Gradient accumulation is not supported with optimizer in bwd.Please set gradient_accumulation_steps=1, or optimizer_in_bwd=False.";
}

// recipes/full_finetune_distributed.py, train. At 0.3.1 a mean over gradient_accumulation_steps. At 0.4.0 and 0.5.0 the sum over the tokens of a micro-batch, and
// scale_grads() by 1 over those of the window on all ranks, which fully_shard's mean divides by the ranks once more (torchtune#2172). At 0.6.1 by the ranks over them. Batches
// are counted anew in each epoch, and those behind its last step are neither stepped nor cleared.
Expansion torchtune(const LoopSetting& s) {
  const std::string& release = s.packages.at("torchtune");
  const std::string by = at_least(release, "0.6") ? "world/tokens_of_window" : "1/tokens_of_window";
  Wrapping w;
  if (!at_least(release, "0.4")) w.weight = one_over(s.micro_batches);
  else w.weight = s.optimizer_in_backward ? "tokens*" + by : "tokens";
  if (at_least(release, "0.4") && !s.optimizer_in_backward) w.scale = by;
  w.end = EpochEnd::holds;
  return expand(s, w, {{"divide_by", "tokens"}}, true);
}

std::vector<LoopPackage> nemo_packages() {
  static constexpr std::array<std::string_view, 2> changed{"2.0.0", "2.4.0"};
  return {{"nemo-toolkit", "2.5.0", changed}};
}

// nemo/lightning/megatron_parallel.py, MaskedTokenLossReduction: since 2.4 it returns a sum and its tokens; a mean alone before, of which no tokens can be counted.
std::string refused_by_nemo(const LoopSetting& s) {
  if (!s.per_token || at_least(s.packages.at("nemo-toolkit"), "2.4")) return "";
  return "calculate_per_token_loss needs the tokens of a loss, which MaskedTokenLossReduction returns since NeMo 2.4; there is no model of what an older one makes of it";
}

}  // namespace gradledger::loops
