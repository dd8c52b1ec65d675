// A training set-up: what files and options say together, ready to be made a scenario of.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "loops/loops.h"
#include "audit/people_files.h"
#include "report/audit.h"
#include "sim/frameworks/framework.h"
#include "sim/frameworks/user_config.h"

namespace gradledger::audit {

// What the command line asks for.
struct Request {
  Paths files;
  loops::Releases releases;                  // by package, from options
  std::string freeze;                        // file
  std::optional<loops::Releases> installed;  // of an interpreter's environment
  std::string loop, script;                  // a name of loops::all(), or a scenario whose script is taken
  std::optional<std::uint32_t> ranks, micro_batches;
  std::uint32_t windows = 3, last_window = 0;
  bool sync_each_batch = false;        // GradientAccumulationPlugin(sync_each_batch=True)
  std::string epoch_end = "data";      // of accelerate: data, counter (sync_with_dataloader=False), or left, by a break
  std::string loss_agg_mode;           // of verl; empty: token-mean
  bool dynamic_micro_batches = false;  // of verl: use_dynamic_bsz
  bool optimizer_in_backward = false;  // of torchtune: optimizer_in_bwd
  bool undivided = false;              // of lightning-manual: losses are not divided by the micro-batches of a window
  std::string model, optimizer, loss = "tokens", tokens = "equal";
  std::string grpo_loss;  // a loss_type; empty: what files say
  std::optional<std::uint32_t> steps_per_generation;
  std::vector<std::string> leave_out;  // pointers into the configuration
};

struct Setup {
  const Framework* framework = nullptr;
  nlohmann::json config, optimizer;
  std::string optimizer_name, model_dtype, as_of;
  const loops::Loop* loop = nullptr;  // null: a script
  loops::LoopSetting setting;         // but for what the configuration decides
  nlohmann::json script_of;           // of a script: the scenario that it is taken from
  nlohmann::json parameters;
  bool uneven_tokens = false;
  std::uint32_t ranks = 1;
  nlohmann::json groups, layout;  // /groups and /layout of a scenario; null: none

  // For the report.
  std::string model;
  std::vector<std::string> packages;
  std::vector<report::AuditFilled> filled;
  std::vector<std::string> ignored, unknown, notes, not_modelled, not_judged;
};

// Whether its epochs may end in shorter windows.
bool has_epochs(const loops::Loop& loop);

// The package whose release decides what the framework does.
std::string package_of(const Framework& framework);

// Everything that is wrong with files and options, or the set-up.
struct Resolved {
  std::optional<Setup> setup;
  std::vector<InputError> errors;
};
Resolved resolve(const Request& request);

}  // namespace gradledger::audit
