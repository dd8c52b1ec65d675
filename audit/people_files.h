// The files that people have beside ds_config.json: what accelerate was told, what a Trainer was given.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "audit/json_file.h"
#include "loops/releases.h"
#include "sim/frameworks/user_config.h"

namespace gradledger::audit {

// What files say together, before a framework reads its configuration.
struct Given {
  std::string framework;           // id; empty: no file says it
  std::optional<Document> config;  // the framework's configuration
  bool of_megatron_lm = false;     // they are Megatron-LM's arguments, though the framework is Megatron-FSDP
  TrainingArguments arguments;
  std::optional<std::uint32_t> ranks, machines;
  std::vector<FilledValue> filled;       // into `config`
  std::optional<bool> average_tokens;    // average_tokens_across_devices
  std::optional<std::string> grpo_loss;  // loss_type of trl.GRPOConfig, as are the next
  std::optional<std::uint32_t> steps_per_generation, num_iterations, generation_batch_size;
  std::vector<std::string> ignored, unknown, notes, not_modelled;
  std::vector<InputError> errors;  // of all files
};

struct Paths {
  std::string config;     // ds_config.json, arguments of DistributedDataParallel, or accelerate's config.yaml; empty: none
  std::string arguments;  // --trainer-args
  std::string framework;  // --framework; empty: by the files
};

// Releases: of packages that change what a file means.
Given read_files(const Paths& paths, const loops::Releases& releases);

// Accelerate's configuration: accelerate/commands/config and utils/dataclasses.py, DeepSpeedPlugin, at 1.9.0.
void take_accelerate(const Document& file, const std::filesystem::path& folder, const loops::Releases& releases, Given& out);

// Arguments of transformers.TrainingArguments, as to_json_string() writes them or as somebody did by hand.
void take_trainer(const Document& file, const std::filesystem::path& folder, const loops::Releases& releases, Given& out);

}  // namespace gradledger::audit
