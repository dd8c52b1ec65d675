// The ranks that a script of Megatron-LM asks for, as the layout of a scenario, and where the parameters of a model lie on them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "sim/base/result.h"
#include "sim/frameworks/user_config.h"

namespace gradledger::megatron {

// Sizes as Megatron's arguments have them; `ranks` are all of them.
struct AskedLayout {
  std::uint64_t ranks = 1, tensor = 1, context = 1, stages = 1, experts_over = 1, expert_tensor = 1;
  std::uint64_t experts = 0;        // of a layer; 0: it has none
  std::uint64_t chunks = 1;         // of a stage; above 1 the schedule is interleaved
  std::uint64_t instances = 1;      // of the distributed optimizer
  bool stages_before_data = false;  // --use-tp-pp-dp-mapping
  bool sequence_parallel = false;   // norms and biases have the gradient of a share of the sequence
  bool tied = false;                // first and last stage share the embedding

  std::uint64_t model() const { return tensor * stages * context; }
  std::uint64_t data() const { return ranks / model(); }
  // Something that a world of data-parallel ranks alone does not have.
  bool has_parts() const { return tensor > 1 || stages > 1 || experts > 0; }
};

struct LaidOut {
  std::uint64_t ranks = 1;                               // that are replayed
  nlohmann::json layout, groups, parameters;             // of a scenario; null: none
  nlohmann::json attributes = nlohmann::json::object();  // /engine/config/parameters
  nlohmann::json model_chunks;                           // /engine/config/schedule; null: the schedule is not interleaved
  std::vector<std::string> not_judged, not_modelled, notes;
};

// Parameters of hints.parameters, or more of them where that is a stand-in. A world of more than 64 ranks is replayed with fewer tensor-parallel ranks,
// stages and shares of experts. Errors: the model has no layer for some part of it.
Result<LaidOut> lay_out(AskedLayout asked, const UserConfigHints& hints);

}  // namespace gradledger::megatron
