// A configuration as the users of a framework keep it: with "auto", keys that have nothing to do with gradients, and misspelt ones. Each framework
// reads its own; what comes out is what a scenario has, and what was done on the way.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "sim/base/result.h"

namespace gradledger {

// What a training loop's own arguments say; absent: they do not.
struct TrainingArguments {
  std::optional<std::uint32_t> gradient_accumulation_steps, per_device_train_batch_size;
  std::optional<double> max_grad_norm, learning_rate, adam_beta1, adam_beta2, adam_epsilon, weight_decay;
  std::optional<bool> bf16, fp16, sync_each_batch;
  std::optional<std::string> optim;
  std::optional<bool> ddp_find_unused_parameters, ddp_static_graph;
  std::optional<double> ddp_bucket_cap_mb;
};

// A value that stands where the file has none, or "auto".
struct FilledValue {
  std::string pointer, value, why;

  bool operator==(const FilledValue&) const = default;
};

struct UserConfig {
  nlohmann::json config = nlohmann::json::object();  // /engine/config of a scenario
  nlohmann::json optimizer;                          // /engine/optimizer of a scenario; null: the file has none
  std::string optimizer_name;                        // as it stands in the file; empty: none
  std::string model_dtype;                           // where the configuration of a scenario does not say it; empty: it does
  std::optional<std::uint32_t> ranks;                // those that are replayed, where others hold other parts of the model; absent: all
  nlohmann::json groups;                             // /groups of a scenario; null: none
  nlohmann::json layout;                             // /layout of a scenario; null: none
  nlohmann::json parameters;                         // /parameters of a scenario, where ranks hold different parts; null: the model's as they are
  std::optional<std::uint32_t> micro_batches;        // of a window, where the file says it and the configuration of a scenario does not
  std::vector<FilledValue> filled;
  std::vector<std::string> ignored, unknown;  // pointers of keys that do not touch gradients; that are not known
  std::vector<std::string> not_modelled;      // what touches gradients and has no model here, a sentence each
  std::vector<std::string> not_judged;        // what the answer leaves open though it has one, a sentence each
  std::vector<std::string> notes;             // sentences: what the framework itself would say
  std::vector<InputError> errors;             // all of them
};

struct UserConfigHints {
  std::uint32_t ranks = 1;
  bool ranks_are_stated = true;           // by somebody; otherwise `ranks` is a default
  std::optional<std::uint32_t> machines;  // that the ranks are spread over; absent: nobody says
  TrainingArguments arguments;
  std::optional<std::uint32_t> accumulation_steps;  // for a file that leaves them open
  std::string accumulation_why;
  std::uint64_t shrink = 1;                      // the model is this many times smaller than the user's: so are sizes in elements
  std::optional<std::uint64_t> hidden_size;      // of the user's model; absent: nobody says
  std::vector<std::vector<std::string>> layers;  // of the user's model, by the names of their parameters; empty: nobody says
  nlohmann::json parameters;                     // of the user's model, or of one that stands for it: name and numel of each; null: a script says its own
  bool stand_in = false;                         // they stand for any
  std::map<std::string, std::uint64_t> rows;     // of its parameters that have several dimensions: the first; empty: nobody says
};

// A configuration that differs in one thing, in a user's words: "turn CPU offload of the optimizer off".
struct ConfigChange {
  std::string says, id;  // id: short, for a column: "stage 1"
  nlohmann::json config;
};

class UserConfigReader {
 public:
  virtual ~UserConfigReader() = default;

  virtual UserConfig read(const nlohmann::json& given, const UserConfigHints& hints) const = 0;
  // Of a configuration that was read: with other micro-batches in a window.
  virtual void count_windows(nlohmann::json& config, std::uint32_t micro_batches) const = 0;
  // How many the framework counts itself.
  virtual std::uint32_t counted_window(const nlohmann::json& config) const = 0;
  // What a user may change when the configuration as it is loses gradients: candidates, each alone.
  virtual std::vector<ConfigChange> changes(const nlohmann::json& config) const = 0;
  // How far it shards, in all ways: for a matrix. Empty: there is one.
  virtual std::vector<ConfigChange> stages(const nlohmann::json& /*config*/) const { return {}; }
  // Of a framework without a History: the first release of each run of releases that behave alike, oldest first. Empty: one release is modelled.
  virtual std::vector<std::string> releases() const { return {}; }
};

}  // namespace gradledger
