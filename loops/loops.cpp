#include "loops/loops.h"

#include <algorithm>
#include <array>

#include "loops/of_megatron.h"
#include "loops/of_packages.h"
#include "loops/of_recipes.h"
#include "loops/of_rl.h"
#include "loops/script.h"

namespace gradledger::loops {
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

constexpr std::array<std::string_view, 1> deepspeed_alone{"deepspeed"}, megatron_alone{"megatron"};
constexpr std::array<std::string_view, 3> in_megatron{"megatron", "megatron-fsdp", "megatron-fsdp-v2"};
constexpr std::array<std::string_view, 4> wrapped_models{"deepspeed", "ddp", "fsdp1", "fsdp2"};
constexpr std::array<std::string_view, 1> fully_sharded{"fsdp2"};
constexpr std::array<std::string_view, 3> unmanaged_models{"ddp", "fsdp1", "fsdp2"};
constexpr std::array<std::string_view, 7> all_frameworks{"deepspeed", "ddp", "fsdp1", "fsdp2", "megatron", "megatron-fsdp", "megatron-fsdp-v2"};

}  // namespace

std::span<const Loop> all() {
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
      {"hf-trainer", "transformers.Trainer: gradient_accumulation_steps micro-batches a step", wrapped_models, true, false, trainer_packages(), hf_trainer, refused_by_trainer},
      {"lightning", "lightning.Trainer with accumulate_grad_batches, automatic optimization", wrapped_models, true, false, lightning_packages(), lightning},
      {"lightning-manual", "lightning.Trainer with automatic_optimization = False: training_step runs n backwards, divided by n, and steps by its batch_idx", unmanaged_models,
       false, true, lightning_packages(), lightning_manual, nullptr, true},
      {"trl", "trainers of TRL whose loss is a mean that they take themselves: DPO, KTO, ORPO, CPO, reward models (SFTTrainer is hf-trainer)", wrapped_models, true, false,
       trl_packages(), trl},
      {"grpo", "trl.GRPOTrainer: the loss divided as loss_type has it, gradient_accumulation_steps micro-batches a step", wrapped_models, true, false, grpo_packages(), grpo},
      {"open-instruct", "open_instruct/grpo_fast.py: a loop of its own on a DeepSpeed engine with gradient_accumulation_steps 1", deepspeed_alone, false, true,
       open_instruct_packages(), open_instruct},
      {"open-instruct-finetune", "open_instruct/finetune.py: accelerate's loop with the mean loss of a micro-batch, or the sum that reduce_loss could make it until 2025-09",
       wrapped_models, true, false, finetune_packages(), open_instruct_finetune, refused_by_finetune},
      {"verl", "workers of verl: every micro-batch reduces, one step behind the mini-batch, the loss divided as loss_agg_mode has it", wrapped_models, false, true, verl_packages(),
       verl, refused_by_verl},
      {"nemo-rl", "DTensor workers of NeMo-RL: every micro-batch reduces, one step behind the global batch, the loss divided by the tokens of all of it", fully_sharded, false,
       false, nemo_rl_packages(), nemo_rl},
      {"torchtitan", "train_step() of torchtitan: every micro-batch reduces; since 0.3.0 the loss is divided by the tokens of the window", fully_sharded, false, false,
       torchtitan_packages(), torchtitan},
      {"torchtune", "full_finetune_distributed of torchtune: every micro-batch reduces, gradients are divided by the tokens of the window before step()", fully_sharded, false,
       false, torchtune_packages(), torchtune, refused_by_torchtune, true},
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
       in_megatron,
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
      {"nemo", "MegatronStrategy of NeMo 2: one batch of Lightning is a global batch, and Megatron's schedule runs its micro-batches", megatron_alone, false, false,
       nemo_packages(), megatron_schedule, refused_by_nemo},
  };
  return table;
}

std::string_view first_release_with(std::string_view framework, std::string_view package) { return framework == "fsdp2" && package == "accelerate" ? "1.6.0" : "0"; }

bool Loop::runs_on(std::string_view framework) const { return std::find(frameworks.begin(), frameworks.end(), framework) != frameworks.end(); }

const Loop* named(std::string_view name) {
  for (const Loop& loop : all())
    if (loop.name == name) return &loop;
  return nullptr;
}

}  // namespace gradledger::loops
