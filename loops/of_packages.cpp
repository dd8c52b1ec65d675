#include "loops/of_packages.h"

#include <array>

#include <fmt/format.h>

#include "loops/script.h"
#include "loops/windows.h"

namespace gradledger::loops {
namespace {

using nlohmann::json;

// First releases with another loop, of those that were read or run: accelerate 0.34.2 to 1.15.0, transformers 4.45.2 to 5.24.0.
constexpr std::array<std::string_view, 5> accelerate_changed{"0.34.0", "1.6.0", "1.8.0", "1.9.0", "1.11.0"};
constexpr std::array<std::string_view, 7> transformers_changed{"4.45.0", "4.46.0", "4.47.0", "4.48.0", "4.49.0", "4.54.0", "5.0.0"};
constexpr std::array<std::string_view, 3> trl_changed{"0.11.0", "0.12.0", "0.14.0"};

constexpr LoopPackage accelerate_package{"accelerate", "1.15.0", accelerate_changed};
constexpr LoopPackage transformers_package{"transformers", "5.24.0", transformers_changed};

// Micro-batches of uneven length in the order in which a GRPOTrainer has them: a generation is cut into steps_per_generation slices, which are gone
// through num_iterations times.
class Generations {
 public:
  explicit Generations(const LoopSetting& s) : s_(s), slices_(s.grpo.steps_per_generation == 0 ? s.micro_batches : s.grpo.steps_per_generation) {}

  std::uint32_t tokens(std::uint32_t rank, std::uint32_t step) const {
    constexpr std::array<std::uint32_t, 10> drawn{4, 2, 8, 2, 6, 3, 5, 1, 7, 2};
    return drawn[((step / (slices_ * s_.grpo.num_iterations) * slices_ + step % slices_) * s_.ranks + rank) % drawn.size()];
  }

  // "dapo" on each rank: its tokens over num_items_in_batch, which is that of a generation on all ranks, brought to one window, and times the ranks.
  json dapo_weights(std::uint32_t step) const {
    json out = json::array();
    for (std::uint32_t r = 0; r < s_.ranks; ++r) out.push_back(fmt::format("{}*world*{}/{}/{}", tokens(r, step), slices_, items(step), s_.micro_batches));
    return out;
  }

  json table() const {
    json out = json::array();
    for (std::uint32_t window = 0; window < s_.windows; ++window) {
      json rows = json::array();
      for (std::uint32_t r = 0; r < s_.ranks; ++r) {
        json row = json::array();
        for (std::uint32_t m = 0; m < s_.micro_batches; ++m) row.push_back(tokens(r, window * s_.micro_batches + m));
        rows.push_back(std::move(row));
      }
      out.push_back(std::move(rows));
    }
    return {{"table", std::move(out)}};
  }

 private:
  std::uint32_t items(std::uint32_t step) const {
    const std::uint32_t first = step / (slices_ * s_.grpo.num_iterations) * slices_ * s_.grpo.num_iterations;
    std::uint32_t out = 0;
    for (std::uint32_t k = first; k < first + slices_; ++k)
      for (std::uint32_t r = 0; r < s_.ranks; ++r) out += tokens(r, k);
    return out;
  }

  const LoopSetting& s_;
  std::uint32_t slices_;
};

// Each micro-batch by itself, for each has a weight of its own.
json weighed_window(const LoopSetting& s, const Wrapping& w, const Generations& generations, std::uint32_t window) {
  json out = json::array();
  for (std::uint32_t m = 0; m < s.micro_batches; ++m) {
    const bool last = m + 1 == s.micro_batches;
    json own = json::array();
    if (s.on_deepspeed()) engine_micro_batch(own, w, w.weight, last, false);
    else own.push_back(backward(w.weight));
    json& event = own.front();
    json& weighed = event.contains("no_sync") ? event["no_sync"] : own;
    for (json& each : weighed)
      if (each.contains("backward")) each["backward"]["weight"] = generations.dapo_weights(window * s.micro_batches + m);
    if (!s.on_deepspeed() && w.holds_back && !last) own = json::array({no_sync(std::move(own))});
    out.insert(out.end(), own.begin(), own.end());
  }
  if (!s.on_deepspeed()) {
    out.push_back(step());
    out.push_back(zero_grad());
  }
  return out;
}

// transformers/trainer.py: its own no_sync, which it has since 4.47, asks for sync_each_batch since 5.2.
bool asks_for_each(const LoopSetting& s) { return at_least(s.packages.at("transformers"), "5.2"); }

// accelerator.py, accumulate: sync_each_batch keeps it out of no_sync. no_sync: DeepSpeed's own is entered at every stage before 1.9.0, and below stage 2 since. utils/deepspeed.py, backward: the
// boundary is set by hand since 1.8.0 (accelerate#3630). fully_shard has no no_sync: until 1.11.0, which sets set_requires_gradient_sync(False) in
// its place, every micro-batch reduces.
void of_accelerate(const LoopSetting& s, Wrapping& w, bool accumulates) {
  const std::string& release = s.packages.at("accelerate");
  const bool syncs_each = s.sync_each_batch && (accumulates || asks_for_each(s));
  if (!s.on_deepspeed()) {
    w.holds_back = !syncs_each && (s.framework != "fsdp2" || at_least(release, "1.11.0"));
    return;
  }
  w.boundary_by_hand = at_least(release, "1.8.0");
  w.holds_back = accumulates && !syncs_each && (!at_least(release, "1.9.0") || s.stage.value_or(0) < 2);
}

// Whether the count of num_items_in_batch, where there is one, is that of all ranks: average_tokens_across_devices, which 4.46 did not have.
bool averages_tokens(const LoopSetting& s) {
  const std::string& release = s.packages.at("transformers");
  return at_least(release, "4.47") && s.average_tokens.value_or(at_least(release, "4.54"));
}

// What a loss that is a sum over num_items_in_batch weighs. 4.47 multiplied it by the ranks in the model's own loss alone.
std::string weight_of_counted(const LoopSetting& s) {
  if (!averages_tokens(s)) return "tokens/tokens_of_rank";
  const bool forgets_ranks = s.loss == Loss::function && !at_least(s.packages.at("transformers"), "4.48");
  return forgets_ranks ? "tokens/tokens_of_window" : "world*tokens/tokens_of_window";
}

// What transformers' training_step makes of the loss, before the engine or accelerate divides it: trainer.py at 4.45.2, 4.46.0, 4.47.1, 4.48.3,
// 4.49.0, 4.51.3, 4.54.1, 5.23.0. `counts`: the loss came out as a sum over num_items_in_batch.
void of_training_step(const LoopSetting& s, Wrapping& w, bool counts, bool mean_is_divided) {
  const std::string& release = s.packages.at("transformers");
  const std::string steps = std::to_string(s.micro_batches), base = weight_of_counted(s), each = one_over(s.micro_batches);
  const bool engine = s.on_deepspeed();
  if (!at_least(release, "4.46")) w.weight = engine ? "" : each;
  else if (!at_least(release, "4.47")) w.weight = counts ? (engine ? steps + "*" + base : base) : engine ? steps : "";
  else if (counts) w.weight = base;
  else w.weight = at_least(release, "4.48") && mean_is_divided ? each : "";
  w.engine_scales = !at_least(release, "4.49");
  w.tail_by_itself = at_least(release, "5.0") && !counts && mean_is_divided;
  // Its own loop asks for the last batch of an epoch since 4.47; before, accumulate() was told sync_with_dataloader=False.
  w.end = at_least(release, "4.47") ? EpochEnd::closes : EpochEnd::goes_on;
  w.ends_with_whole_windows = !at_least(release, "4.54");
}

Counted counted_by_trainer(const LoopSetting& s) {
  const std::string& release = s.packages.at("transformers");
  const bool asks_the_model = at_least(release, "4.48");
  if (!at_least(release, "4.46") || (asks_the_model && s.loss == Loss::mean)) return Counted::nothing;
  return averages_tokens(s) ? Counted::of_all_ranks : Counted::of_rank;
}

}  // namespace

std::vector<LoopPackage> accelerate_packages() { return {accelerate_package}; }

Expansion accelerate(const LoopSetting& s) { return accelerate_with(s, "", "window"); }

// accelerator.py, _do_sync: micro-batches are counted over epochs, but that the last one of a loader begins anew (sync_with_dataloader). backward: divides by
// gradient_accumulation_steps, a tail too.
Expansion accelerate_with(const LoopSetting& s, const std::string& weight, const std::string& divide_by) {
  Wrapping w;
  of_accelerate(s, w, true);
  const std::string each = s.on_deepspeed() ? "" : one_over(s.micro_batches);
  w.weight = weight.empty() ? each : each.empty() ? weight : weight + "*" + each;
  if (!s.sync_with_dataloader) w.end = EpochEnd::goes_on;
  return expand(s, w, {{"divide_by", divide_by}}, divide_by == "tokens");
}

std::vector<LoopPackage> trainer_packages() { return {transformers_package, accelerate_package}; }

// Before 4.47 around accelerator.accumulate(); since then no_sync by itself, and not with DeepSpeed.
Expansion hf_trainer(const LoopSetting& s) {
  Wrapping w;
  of_accelerate(s, w, !at_least(s.packages.at("transformers"), "4.47"));
  of_training_step(s, w, s.loss != Loss::mean, true);
  Expansion out = expand(s, w, {{"divide_by", s.loss == Loss::mean ? "window" : "tokens"}}, true);
  out.counted = counted_by_trainer(s);
  return out;
}

std::string refused_by_trainer(const LoopSetting& s) {
  if (s.loss != Loss::function || at_least(s.packages.at("transformers"), "4.46")) return "";
  return "TypeError: Trainer.__init__() got an unexpected keyword argument 'compute_loss_func'";
}

std::vector<LoopPackage> trl_packages() { return {{"trl", "1.16.0", trl_changed}, transformers_package, accelerate_package}; }

// trainer/dpo_trainer.py and others: trl#2456, trl#2615: from 0.12 to 0.13 the Trainer takes the loss for one that was divided by a count.
Expansion trl(const LoopSetting& s) {
  const std::string& release = s.packages.at("trl");
  const bool taken_for_counted = at_least(release, "0.12") && !at_least(release, "0.14");
  Wrapping w;
  of_accelerate(s, w, !at_least(s.packages.at("transformers"), "4.47"));
  of_training_step(s, w, false, !taken_for_counted);
  return expand(s, w, {{"divide_by", "window"}}, true);
}

std::vector<LoopPackage> grpo_packages() {
  static constexpr std::array<std::string_view, 1> trl_read{"1.16.0"}, transformers_of_trl{"4.56.2"}, accelerate_of_trl{"1.10.1"};
  return {{"trl", "1.16.0", trl_read},
          {transformers_package.name, transformers_package.newest, transformers_of_trl},
          {accelerate_package.name, accelerate_package.newest, accelerate_of_trl}};
}

// trl/trainer/grpo_trainer.py, _compute_loss, at 1.16.0. "grpo" means over the tokens of each sequence and then over sequences, "bnpo" over the tokens of
// a micro-batch, and "dr_grpo" divides its sum by a constant, so that every token counts alike: these three divide by the micro-batches of a window.
// "dapo" divides by the tokens of a generation. base_trainer.py keeps the Trainer from dividing once more.
Expansion grpo(const LoopSetting& s) {
  Wrapping w;
  of_accelerate(s, w, false);
  w.engine_scales = false;
  const bool dapo = s.grpo.loss == GrpoLoss::dapo;
  const json contract{{"divide_by", dapo || s.grpo.loss == GrpoLoss::bnpo ? "tokens" : "window"}};
  w.weight = dapo ? "world*tokens/tokens_of_window" : one_over(s.micro_batches);
  Expansion out = expand(s, w, contract, true);
  if (!s.uneven_tokens) return out;
  const Generations generations(s);
  out.tokens = generations.table();
  if (!dapo) return out;
  out.script = json::array();
  for (std::uint32_t window = 0; window < s.windows; ++window)
    for (json& event : weighed_window(s, w, generations, window)) out.script.push_back(std::move(event));
  return out;
}

std::vector<LoopPackage> lightning_packages() {
  static constexpr std::array<std::string_view, 1> changed{"2.0.0"};
  return {{"lightning", "2.6.6", changed}};
}

// pytorch/loops/optimization/automatic.py: ClosureResult divides by accumulate_grad_batches, also in a shorter last window.
// pytorch/strategies/deepspeed.py: the engine is given the same number, and divides and counts too. pytorch/strategies/parallel.py,
// block_backward_sync: of DistributedDataParallel alone. The closure clears gradients before the first backward of a window. At 2.6.6.
Expansion lightning(const LoopSetting& s) {
  Wrapping w;
  w.weight = one_over(s.micro_batches);
  w.holds_back = s.framework == "ddp";
  w.clears_before = true;
  if (s.on_deepspeed()) w.end = EpochEnd::holds;  // the engine counts, and knows of no epoch
  return expand(s, w, {{"divide_by", "window"}}, false);
}

// pytorch/loops/optimization/manual.py: nothing is divided, held back or cleared but by the training_step, which steps by its batch_idx. At 2.6.6.
Expansion lightning_manual(const LoopSetting& s) {
  Wrapping w;
  if (s.divides) w.weight = one_over(s.micro_batches);
  w.end = EpochEnd::holds;
  return expand(s, w, {{"divide_by", "window"}}, false);
}

}  // namespace gradledger::loops
