#include "loops/of_rl.h"

#include <array>

#include <fmt/format.h>

#include "loops/of_packages.h"
#include "loops/script.h"
#include "loops/windows.h"

namespace gradledger::loops {
namespace {

using nlohmann::json;

Expansion alike(const LoopSetting& s, json window) {
  Expansion out;
  out.script.push_back({{"repeat", {{"times", s.windows}, {"of", std::move(window)}}}});
  return out;
}

// Every micro-batch reduces, and one step() follows. `weight`: of a backward's arguments.
Expansion reduced_each(const LoopSetting& s, const json& weight) {
  json event = backwards(s.micro_batches);
  if (weight != json("")) event["backward"]["weight"] = weight;
  json window = json::array({std::move(event), step()});
  if (!s.on_deepspeed()) window.push_back(zero_grad());
  Expansion out = alike(s, std::move(window));
  out.contract = {{"divide_by", "tokens"}};
  if (s.on_deepspeed()) out.contract["window"] = "every_step_call";
  out.counts_tokens = true;
  return out;
}

constexpr const char* of_all_tokens = "world*tokens/tokens_of_window";

// Sequences of each micro-batch, by rank: as many on every rank, since ranks share a mini-batch out evenly. Of one length of micro-batches: 4 each.
std::vector<std::vector<std::uint32_t>> sequences_of(const LoopSetting& s) {
  constexpr std::array<std::uint32_t, 10> drawn{4, 2, 8, 2, 6, 3, 5, 1, 7, 2};
  std::vector<std::vector<std::uint32_t>> out(s.ranks);
  for (std::uint32_t r = 0; r < s.ranks; ++r)
    for (std::uint32_t m = 0; m < s.micro_batches; ++m) out[r].push_back(s.verl.dynamic ? drawn[(m + r) % s.micro_batches % drawn.size()] : 4);
  return out;
}

// A token mean of each micro-batch times the share of the sequences that it has: rank by rank, and micro-batch by micro-batch.
json shares_of(const std::vector<std::vector<std::uint32_t>>& sequences) {
  json out = json::array();
  for (const std::vector<std::uint32_t>& of_rank : sequences) {
    std::uint32_t all = 0;
    for (const std::uint32_t n : of_rank) all += n;
    json row = json::array();
    for (const std::uint32_t n : of_rank) row.push_back(fmt::format("{}/{}", n, all));
    out.push_back(std::move(row));
  }
  return out;
}

// verl/workers/actor/dp_actor.py, update_policy, at 0.3.0.post1, 0.5.0 and 0.7.0: agg_loss of the micro-batch alone, times its share of the mini-batch's sequences,
// which is 1/n where micro-batches have one size. seq-mean-token-sum-norm is a sum there, over a constant.
json weight_by_micro_batch(const LoopSetting& s) {
  switch (s.verl.mode) {
    case AggMode::token_mean:
    case AggMode::token_sum: return s.verl.dynamic ? shares_of(sequences_of(s)) : json(one_over(s.micro_batches));
    case AggMode::seq_mean_token_sum:
    case AggMode::seq_mean_token_mean: return "tokens/tokens_of_rank";
    case AggMode::seq_mean_token_sum_norm: return "tokens*tokens/tokens_of_rank";
  }
  return "";
}

}  // namespace

std::vector<LoopPackage> verl_packages() {
  static constexpr std::array<std::string_view, 2> changed{"0.3.0", "0.9.0"};
  return {{"verl", "0.9.1", changed}};
}

std::string refused_by_verl(const LoopSetting& s) {
  if (s.verl.mode != AggMode::token_sum) return "";
  if (!at_least(s.packages.at("verl"), "0.9")) return "ValueError: Invalid loss_agg_mode: token-sum";
  return "loss_agg_mode token-sum adds up the tokens of a mini-batch and divides by nothing, so there is no mean that an update could be held against; expected another mode";
}

// verl/workers/engine and trainer/ppo/core_algos.py, agg_loss, at 0.9.1: the loss of a micro-batch is its sum over what the whole mini-batch has on all ranks, times the
// ranks. Tokens of the scenario are what the mode takes a mean of: tokens, or sequences.
Expansion verl(const LoopSetting& s) {
  const bool global = at_least(s.packages.at("verl"), "0.9");
  Expansion out = reduced_each(s, global ? json(of_all_tokens) : weight_by_micro_batch(s));
  if (s.verl.mode != AggMode::token_mean) out.tokens = {{"table", json::array({sequences_of(s)})}};
  return out;
}

std::vector<LoopPackage> nemo_rl_packages() {
  static constexpr std::array<std::string_view, 1> read{"2025.5"};
  return {{"nemo-rl", "2026.8", read}};
}

// nemo_rl/models/policy/workers/dtensor_policy_worker.py, train, at 2026-08: a loss is a sum over global_valid_toks, times dp_size and cp_size, which undoes the mean of
// fully_shard. Micro-batches that fill up are multiplied by 0.
Expansion nemo_rl(const LoopSetting& s) { return reduced_each(s, of_all_tokens); }

std::vector<LoopPackage> open_instruct_packages() {
  static constexpr std::array<std::string_view, 3> changed{"2025.6", "2025.12", "2026.2"};
  return {{"open-instruct", "2026.8", changed}};
}

// open_instruct/grpo_fast.py, at 2026-08: gradient_accumulation_steps of the engine stays 1, the loss is divided by the tokens of the window. Before open-instruct#1161
// it was the mean of the micro-batch over the micro-batches. The boundary is set since open-instruct#1498.
Expansion open_instruct(const LoopSetting& s) {
  const bool sets_boundary = at_least(s.packages.at("open-instruct"), "2026.2");
  const std::uint32_t n = s.micro_batches;
  const std::string weight = at_least(s.packages.at("open-instruct"), "2025.12") ? of_all_tokens : one_over(n);
  json events = json::array();
  if (sets_boundary) events.push_back(boundary(false));
  if (sets_boundary && n > 1) events.push_back(backwards(n - 1, weight));
  if (sets_boundary) events.push_back(boundary(true));
  events.push_back(backwards(sets_boundary ? 1 : n, weight));
  events.push_back(step());
  Expansion out = alike(s, std::move(events));
  out.contract = {{"divide_by", "tokens"}};
  if (!sets_boundary) out.contract["window"] = "every_step_call";
  out.counts_tokens = true;
  return out;
}

std::vector<LoopPackage> finetune_packages() {
  static constexpr std::array<std::string_view, 2> changed{"2025.6", "2025.9"};
  std::vector<LoopPackage> out{{"open-instruct", "2026.8", changed}};
  for (LoopPackage& package : accelerate_packages()) out.push_back(std::move(package));
  return out;
}

std::string refused_by_finetune(const LoopSetting& s) {
  if (s.loss != Loss::sum || !at_least(s.packages.at("open-instruct"), "2025.9")) return "";
  return "open-instruct has no reduce_loss since 2025-09 (open-instruct#1024): the loss of a micro-batch is its mean";
}

// open_instruct/finetune.py, at 2026-08. The loss of a micro-batch is its mean. Until open-instruct#1024 reduce_loss could make it the sum over its tokens.
Expansion open_instruct_finetune(const LoopSetting& s) {
  const bool sums = s.loss == Loss::sum;
  return accelerate_with(s, sums ? "tokens" : "", sums ? "tokens" : "window");
}

}  // namespace gradledger::loops
