#include "audit/loops.h"

#include <algorithm>
#include <array>

#include "audit/loops_of_megatron.h"
#include "audit/loops_of_packages.h"
#include "audit/script.h"

namespace gradledger::audit {
namespace {

using nlohmann::json;

// The windows one after the other; `window` writes the events of one with so many micro-batches.
template <class Window>
Expansion in_windows(const LoopSetting& s, Window&& window) {
  Expansion out;
  out.script.push_back({{"repeat", {{"times", s.windows}, {"of", window(s.micro_batches)}}}});
  if (s.last_window > 0)
    for (json& event : window(s.last_window)) out.script.push_back(std::move(event));
  return out;
}

// PyTorch's wrappers do not clear gradients behind a step.
void end_window(const LoopSetting& s, json& events) {
  events.push_back(step());
  if (!s.on_deepspeed()) events.push_back(zero_grad());
}

// `engine.step()` behind every backward: the engine counts.
Expansion counted(const LoopSetting& s) {
  return in_windows(s, [&](std::uint32_t n) {
    json each = json::array({backward(), step()});
    return json::array({{{"repeat", {{"times", n}, {"of", std::move(each)}}}}});
  });
}

// n backwards and one step, the boundary set by hand around the last backward.
Expansion manual(const LoopSetting& s) {
  if (s.on_megatron()) return megatron_manual(s);
  return in_windows(s, [&](std::uint32_t n) {
    json out = json::array();
    if (s.on_deepspeed()) out.push_back(boundary(false));
    if (n > 1) out.push_back(backwards(n - 1));
    if (s.on_deepspeed()) out.push_back(boundary(true));
    out.push_back(backward());
    end_window(s, out);
    return out;
  });
}

// n backwards and one step, and nothing that says where the window ends.
Expansion no_boundary(const LoopSetting& s) {
  if (s.on_megatron()) return megatron_never_finalized(s);
  Expansion out = in_windows(s, [&](std::uint32_t n) {
    json events = json::array({backwards(n)});
    end_window(s, events);
    return events;
  });
  if (s.on_deepspeed()) out.contract["window"] = "every_step_call";
  return out;
}

Expansion no_sync_block(const LoopSetting& s) {
  if (s.on_megatron()) return megatron_no_sync(s);
  Expansion out = in_windows(s, [&](std::uint32_t n) {
    json events = json::array();
    if (n > 1) events.push_back(no_sync(json::array({backwards(n - 1)})));
    events.push_back(backward());
    end_window(s, events);
    return events;
  });
  if (s.on_deepspeed()) out.contract["window"] = "every_step_call";
  return out;
}

Expansion coalesced(const LoopSetting& s) {
  Expansion out = in_windows(s, [&](std::uint32_t n) { return json::array({{{"coalesce", json::array({backwards(n)})}}, step()}); });
  out.contract["window"] = "every_step_call";
  return out;
}

// verl/workers/engine, at 0.9.1: every micro-batch reduces, and its loss is its sum over the tokens of the whole mini-batch, times the ranks.
Expansion verl(const LoopSetting& s) {
  Expansion out = in_windows(s, [&](std::uint32_t n) {
    json events = json::array({backwards(n, "world*tokens/tokens_of_window")});
    end_window(s, events);
    return events;
  });
  out.contract = {{"divide_by", "tokens"}};
  if (s.on_deepspeed()) out.contract["window"] = "every_step_call";
  out.counts_tokens = true;
  return out;
}

// open_instruct/grpo_fast.py, at 2026-08: gradient_accumulation_steps of the engine stays 1, the loss is divided by the tokens of the window. The
// boundary is set since open-instruct#1498.
Expansion open_instruct(const LoopSetting& s) {
  const bool sets_boundary = at_least(s.packages.at("open-instruct"), "2026.2");
  const std::string weight = "world*tokens/tokens_of_window";
  Expansion out = in_windows(s, [&](std::uint32_t n) {
    json events = json::array();
    if (sets_boundary) events.push_back(boundary(false));
    if (sets_boundary && n > 1) events.push_back(backwards(n - 1, weight));
    if (sets_boundary) events.push_back(boundary(true));
    events.push_back(backwards(sets_boundary ? 1 : n, weight));
    events.push_back(step());
    return events;
  });
  out.contract = {{"divide_by", "tokens"}};
  if (!sets_boundary) out.contract["window"] = "every_step_call";
  out.counts_tokens = true;
  return out;
}

constexpr std::array<std::string_view, 2> open_instruct_changed{"2025.6", "2026.2"};

constexpr std::array<std::string_view, 1> deepspeed_alone{"deepspeed"}, megatron_alone{"megatron"};
constexpr std::array<std::string_view, 4> wrapped_models{"deepspeed", "ddp", "fsdp1", "fsdp2"};
constexpr std::array<std::string_view, 5> all_frameworks{"deepspeed", "ddp", "fsdp1", "fsdp2", "megatron"};

}  // namespace

std::span<const Loop> loops() {
  static const std::vector<Loop> table{
      {"deepspeed",
       "engine.backward(loss) and engine.step() for each micro-batch: the engine counts, and every gradient_accumulation_steps-th step() updates",
       deepspeed_alone,
       true,
       true,
       {},
       counted},
      {"manual",
       "n backwards and one step() a window; with DeepSpeed set_gradient_accumulation_boundary(False) before the first and (True) before the last backward; with Megatron-Core "
       "finalize_model_grads() behind the last",
       all_frameworks,
       false,
       true,
       {},
       manual},
      {"no-boundary", "n backwards and one step() a window, and no call that says where the window ends", all_frameworks, false, true, {}, no_boundary},
      {"accelerate", "with accelerator.accumulate(model): accelerator.backward(loss); optimizer.step(); optimizer.zero_grad()", wrapped_models, true, false, accelerate_packages(),
       accelerate},
      {"hf-trainer", "transformers.Trainer: gradient_accumulation_steps micro-batches a step", wrapped_models, true, false, trainer_packages(), hf_trainer},
      {"lightning", "lightning.Trainer with accumulate_grad_batches, automatic optimization", wrapped_models, true, false, lightning_packages(), lightning},
      {"trl", "trainers of TRL whose loss is a mean that they take themselves: DPO, KTO, ORPO, CPO, reward models (SFTTrainer is hf-trainer)", wrapped_models, true, false,
       trl_packages(), trl},
      {"grpo", "trl.GRPOTrainer: the loss divided as loss_type has it, gradient_accumulation_steps micro-batches a step", wrapped_models, true, false, grpo_packages(), grpo},
      {"open-instruct",
       "open_instruct/grpo_fast.py: a loop of its own on a DeepSpeed engine with gradient_accumulation_steps 1",
       deepspeed_alone,
       false,
       true,
       {{"open-instruct", "2026.8", open_instruct_changed}},
       open_instruct},
      {"verl", "workers of verl: every micro-batch reduces, one step behind the mini-batch, the loss divided by the tokens of all of it", wrapped_models, false, true, {}, verl},
      {"no-sync",
       "all backwards of a window but the last inside no_sync(), then one step(); with Megatron-Core finalize_model_grads() before it",
       all_frameworks,
       false,
       true,
       {},
       no_sync_block},
      {"coalesce", "all backwards of a window inside engine.coalesce_grad_reduction(), then one step()", deepspeed_alone, false, true, {}, coalesced},
      {"megatron",
       "train_step() of Megatron-LM: zero_grad_buffer(), a schedule of num_microbatches, which calls finalize_model_grads(), then step()",
       megatron_alone,
       false,
       true,
       {},
       megatron_schedule},
      {"schedule-each",
       "a schedule of one micro-batch for each micro-batch of the window, each with its own finalize_model_grads(), then one step()",
       megatron_alone,
       false,
       true,
       {},
       megatron_schedule_each},
  };
  return table;
}

std::string_view first_release_with(std::string_view framework, std::string_view package) { return framework == "fsdp2" && package == "accelerate" ? "1.6.0" : "0"; }

bool Loop::runs_on(std::string_view framework) const { return std::find(frameworks.begin(), frameworks.end(), framework) != frameworks.end(); }

const Loop* loop_named(std::string_view name) {
  for (const Loop& loop : loops())
    if (loop.name == name) return &loop;
  return nullptr;
}

}  // namespace gradledger::audit
