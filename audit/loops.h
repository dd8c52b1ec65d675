// Training loops that people have, as events of a scenario. Where a package changed its loop, the expansion is that of a release.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "audit/releases.h"
#include "sim/base/result.h"

namespace gradledger::audit {

// What the gradient of a micro-batch is meant to weigh where the loop can tell: every token alike, or every micro-batch.
enum class Loss : std::uint8_t { tokens, mean };

// loss_type of TRL's GRPOTrainer: what it divides the loss of a micro-batch by.
enum class GrpoLoss : std::uint8_t { grpo, bnpo, dr_grpo, dapo };

struct GrpoSetting {
  GrpoLoss loss = GrpoLoss::dapo;
  std::uint32_t steps_per_generation = 0;  // 0: micro_batches
  std::uint32_t num_iterations = 1;
};

struct LoopSetting {
  std::string framework = "deepspeed";  // id
  std::uint32_t counted = 1;            // micro-batches of a window as the framework's own counter has them
  std::optional<std::uint32_t> stage;   // how far it shards; absent: not at all
  bool per_token = false;               // Megatron-Core divides by the tokens of a window at its end
  std::uint32_t micro_batches = 4;      // of a window
  std::uint32_t windows = 3;
  std::uint32_t last_window = 0;  // micro-batches of one more window, shorter than the others, as at the end of an epoch; 0: none
  Loss loss = Loss::tokens;
  bool sync_each_batch = false;  // accelerate is told to reduce every micro-batch
  GrpoSetting grpo;
  std::uint32_t ranks = 1;  // beside uneven_tokens: for loops whose windows differ
  bool uneven_tokens = false;
  Releases packages;  // those that the loop depends on: all of them

  bool on_deepspeed() const { return framework == "deepspeed"; }
  bool on_megatron() const { return framework == "megatron"; }
};

// Parts of a scenario.
struct Expansion {
  nlohmann::json script = nlohmann::json::array();
  nlohmann::json contract = nlohmann::json::object();
  nlohmann::json config = nlohmann::json::object();  // what the loop calls the framework with: keys of the configuration
  nlohmann::json tokens;                             // a table of them, where windows differ by what the loop does; null: none
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

  bool runs_on(std::string_view framework) const;
};

// The oldest release of a package whose loop runs on a framework: accelerate has fully_shard since 1.6.0. "0" where none is known to lack it.
std::string_view first_release_with(std::string_view framework, std::string_view package);

std::span<const Loop> loops();
// Null where there is none of that name.
const Loop* loop_named(std::string_view name);

}  // namespace gradledger::audit
