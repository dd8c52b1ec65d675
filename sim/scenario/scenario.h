// A scenario: a value that says everything about a run. World, parameters, dtypes, engine configuration, script of events, the
// user's contract and the expected findings. docs/scenario-format.md explains each field to its users.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sim/numeric/dtype.h"
#include "sim/scenario/contract.h"
#include "sim/scenario/framework_config.h"
#include "sim/scenario/predicate.h"
#include "sim/scenario/script.h"
#include "sim/scenario/workload.h"

namespace gradledger {

// Parameters that were given to the optimizer together, by index, in their order there.
struct OptimizerGroup {
  std::vector<std::uint32_t> parameters;
  std::optional<double> learning_rate, weight_decay;  // absent: the optimizer's

  bool operator==(const OptimizerGroup&) const = default;
};

// The release or change of the framework, or switches by name on top of one.
struct AsOf {
  std::string base = "head";
  std::map<std::string, std::string> switches;

  bool operator==(const AsOf&) const = default;
};

struct EngineConfig {
  std::string framework = "deepspeed";
  AsOf as_of;
  FrameworkConfig config;
  OptimizerConfig optimizer;
  std::vector<OptimizerGroup> param_groups;  // empty: one of all parameters
  std::uint32_t expert_parallel_size = 1;
  std::uint32_t sequence_parallel_size = 1;
  std::uint32_t pipeline_stages = 1;

  OptimizerConfig optimizer_of(const OptimizerGroup& group) const;
  OptimizerConfig optimizer_of(std::uint32_t parameter) const;
  bool operator==(const EngineConfig&) const = default;
};

// What the training loop does when the framework raises.
enum class AfterError : std::uint8_t { stop, go_on };

struct ExpectedFinding {
  std::string finding;                     // class name
  std::optional<Predicate> contributions;  // exactly these are miscounted
  std::optional<double> own;               // observed coefficient of the rank's own miscounted contributions
  std::optional<double> peer;              // and of the other ranks' ones
  std::optional<double> lost_weight;       // share of the window's weight that is missing

  bool operator==(const ExpectedFinding&) const = default;
};

struct ExpectedCollectives {
  std::optional<std::uint32_t> per_step{};
  std::optional<std::uint32_t> at_most_per_step{};
  std::optional<std::uint64_t> bytes_per_step{};
  std::optional<std::uint64_t> at_most_bytes_per_step{};

  bool operator==(const ExpectedCollectives&) const = default;
};

// What is held in every closed window; the words are those of sim/accounting.h.
struct ExpectedMemory {
  std::string of = "gradient memory";
  std::string space = "device";
  std::string phase;                  // empty: any
  std::optional<std::uint32_t> rank;  // absent: every rank
  std::optional<std::uint64_t> resident, at_most_resident, peak, at_most_peak;

  bool operator==(const ExpectedMemory&) const = default;
};

// Exact contents of a buffer after an event (numbered from 0 through the unrolled script).
struct ExpectedValues {
  std::uint32_t event = 0;
  std::uint32_t rank = 0;
  std::string buffer;
  std::vector<double> values;

  bool operator==(const ExpectedValues&) const = default;
};

// The applied gradients of two scenarios, step by step: within both bounds of each other, or apart by more.
struct ExpectedComparison {
  std::string with;  // a scenario file, relative to this one
  bool agree = true;

  bool operator==(const ExpectedComparison&) const = default;
};

struct Expect {
  std::vector<ExpectedFinding> findings;
  std::map<std::string, ExpectedCollectives> collectives;  // by purpose: "gradient", "norm", "overflow", "parameter", "user", "control"
  bool accounting_only = false;                            // nothing is judged: a dry run, of any size
  std::vector<ExpectedMemory> memory;
  std::vector<std::string> not_allocated;  // buffers, by name without index
  std::vector<ExpectedValues> values;
  std::optional<ExpectedComparison> comparison;

  bool operator==(const Expect&) const = default;
};

struct Scenario : Workload {
  std::string name;
  std::string note;
  std::vector<std::string> source;
  std::vector<std::string> covers;  // ids of entries of the catalogue
  std::string twin_of;              // the file, relative to this one, of the scenario that this one differs from in one thing
  EngineConfig engine;
  StatedContract contract;
  bool allow_open = false;  // a run in which no step closes a window is what the scenario is about
  AfterError after_error = AfterError::stop;
  std::vector<ScriptItem> script;
  Expect expect;

  bool operator==(const Scenario&) const = default;
};

}  // namespace gradledger
