// Training loops that people have, as events of a scenario. Where a package changed its loop, the expansion is that of a release.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "loops/releases.h"
#include "sim/base/result.h"

namespace gradledger::loops {

// What the gradient of a micro-batch is meant to weigh where the loop can tell: every token alike, or every micro-batch. function: tokens, by a
// compute_loss_func that the Trainer is given. sum: reduce_loss of open-instruct's finetune.py.
enum class Loss : std::uint8_t { tokens, mean, function, sum };

// What a rank gets of an epoch, and whether the loop leaves it with batches still to come.
struct Epoch {
  std::uint32_t batches = 0;
  bool left = false;
};

// loss_type of TRL's GRPOTrainer: what it divides the loss of a micro-batch by.
enum class GrpoLoss : std::uint8_t { grpo, bnpo, dr_grpo, dapo };

struct GrpoSetting {
  GrpoLoss loss = GrpoLoss::dapo;
  std::uint32_t steps_per_generation = 0;  // 0: micro_batches
  std::uint32_t num_iterations = 1;
};

// actor_rollout_ref.actor.loss_agg_mode of verl: what it takes a mean of.
enum class AggMode : std::uint8_t { token_mean, token_sum, seq_mean_token_sum, seq_mean_token_mean, seq_mean_token_sum_norm };

// As verl writes them.
inline constexpr std::array<std::string_view, 5> agg_modes{"token-mean", "token-sum", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm"};

struct VerlSetting {
  AggMode mode = AggMode::token_mean;
  bool dynamic = false;  // use_dynamic_bsz: micro-batches have as many sequences as a budget of tokens allows
};

struct LoopSetting {
  std::string framework = "deepspeed";  // id
  std::uint32_t counted = 1;            // micro-batches of a window as the framework's own counter has them
  std::optional<std::uint32_t> stage;   // how far it shards; absent: not at all
  std::uint32_t stages = 1;             // of a pipeline
  nlohmann::json schedule;              // likewise: chunks of the model, and micro-batches that go through one in turn; as Megatron-Core's scenarios have it
  bool per_token = false;               // Megatron-Core divides by the tokens of a window at its end
  std::uint32_t micro_batches = 4;      // of a window
  std::uint32_t windows = 3;
  std::uint32_t last_window = 0;  // micro-batches of one more window, shorter than the others, as at the end of an epoch; 0: none
  std::vector<Epoch> epochs;      // all of a training, in place of `windows` and `last_window`
  Loss loss = Loss::tokens;
  std::optional<bool> average_tokens;  // average_tokens_across_devices; absent: the release's default
  bool leaves_early = false;           // the loop leaves the epoch in its shorter window, with batches still to come
  bool sync_with_dataloader = true;    // accelerate ends a window with the data
  bool divides = true;                 // somebody's own loop divides its losses by the micro-batches of a window
  bool sync_each_batch = false;        // accelerate is told to reduce every micro-batch
  GrpoSetting grpo;
  VerlSetting verl;
  bool optimizer_in_backward = false;  // torchtune: optimizer_in_bwd
  std::uint32_t ranks = 1;             // beside uneven_tokens: for loops whose windows differ
  bool uneven_tokens = false;
  Releases packages;  // those that the loop depends on: all of them

  bool on_deepspeed() const { return framework == "deepspeed"; }
  bool on_megatron() const { return framework == "megatron"; }
};

enum class Counted : std::uint8_t { nothing, of_rank, of_all_ranks };

// Parts of a scenario.
struct Expansion {
  nlohmann::json script = nlohmann::json::array();
  nlohmann::json contract = nlohmann::json::object();
  nlohmann::json config = nlohmann::json::object();  // what the loop calls the framework with: keys of the configuration
  nlohmann::json tokens;                             // a table of them, where windows differ by what the loop does; null: none
  Counted counted = Counted::nothing;                // what the loop hands to its model as num_items_in_batch
  bool counts_tokens = false;                        // weights or contract do: the scenario states tokens
};

// A package whose releases changed the loop.
struct LoopPackage {
  std::string_view name;
  std::string_view newest;                    // that was read
  std::span<const std::string_view> changed;  // first releases with another loop, oldest first; the first entry is the oldest that was read
};

struct Loop {
  std::string_view name, says;
  std::span<const std::string_view> frameworks;  // ids of those that have its calls
  bool counted_by_framework;                     // its window is the configuration's gradient_accumulation_steps
  bool own;                                      // somebody's own loop, in which calls can be written in another order
  std::vector<LoopPackage> packages;
  Expansion (*expand)(const LoopSetting&);
  // What the package refuses of a setting, in its own words, or what there is no model of; empty: nothing. Null: of none.
  std::string (*refuses)(const LoopSetting&) = nullptr;
  bool has_tails = false;  // epochs of a loop that the framework does not count end in shorter windows too

  bool runs_on(std::string_view framework) const;
};

// The oldest release of a package whose loop runs on a framework: accelerate has fully_shard since 1.6.0. "0" where none is known to lack it.
std::string_view first_release_with(std::string_view framework, std::string_view package);

std::span<const Loop> all();
// Null where there is none of that name.
const Loop* named(std::string_view name);

}  // namespace gradledger::loops
